// An editor by the SDK for TypeScript, which checks each message of `nova acp` against the protocol's schema.
// Arguments: a JSON object with `command`, `cwd` and `prompt`. Prints what it saw as JSON.

import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const { command, cwd, prompt } = JSON.parse(process.argv[2]);
const program = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const stream = ndJsonStream(Writable.toWeb(program.stdin), Readable.toWeb(program.stdout));
const seen = { updates: [], permissions: [] };

const editor = client({ name: "test" })
  .onNotification(methods.client.session.update, ({ params }) => {
    seen.updates.push(params.update);
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.permissions.push(params.toolCall.title);
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onRequest(methods.client.fs.readTextFile, async ({ params }) => ({ content: await readFile(params.path, "utf8") }))
  .onRequest(methods.client.fs.writeTextFile, async ({ params }) => {
    await writeFile(params.path, params.content);
    return {};
  });

await editor.connectWith(stream, async (agent) => {
  const about = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true } },
  });
  seen.about = about;
  const { sessionId } = await agent.request(methods.agent.session.new, { cwd, mcpServers: [] });
  const text = [{ type: "text", text: prompt }];
  seen.answer = await agent.request(methods.agent.session.prompt, { sessionId, prompt: text });
  seen.sessions = (await agent.request(methods.agent.session.list, { cwd })).sessions;
  await agent.request(methods.agent.session.close, { sessionId });
  const replayed = seen.updates.length;
  await agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  seen.replayed = seen.updates.slice(replayed);
  await agent.request(methods.agent.session.delete, { sessionId });
});
program.stdin.end();
console.log(JSON.stringify(seen));
process.exit(0);
