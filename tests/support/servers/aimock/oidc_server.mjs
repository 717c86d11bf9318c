// A real provider of OpenID Connect for tests: `oidc-provider`, with a client of the console and one of command lines, and a person for each name that signs in.
// Its one argument is a JSON object: port, redirect_uris, and people by their names with their claims.
import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";

const { port, redirect_uris, people } = JSON.parse(process.argv[2]);
const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" });
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "console",
      client_secret: "a secret of the console: %&+",
      redirect_uris,
      id_token_signed_response_alg: "ES256",
    },
    {
      client_id: "commands",
      token_endpoint_auth_method: "none",
      grant_types: ["urn:ietf:params:oauth:grant-type:device_code"],
      response_types: [],
      redirect_uris: [],
      id_token_signed_response_alg: "ES256",
    },
  ],
  features: { deviceFlow: { enabled: true } },
  jwks: { keys: [{ ...key, kid: "first", use: "sig", alg: "ES256" }] },
  cookies: { keys: ["tests alone"] },
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
  scopes: ["openid", "email", "profile", "groups"],
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
});
provider.listen(port, "127.0.0.1", () => console.log("ready"));
