"""Answers that customers may see, made at random: prose, code, numbers, hashes, talk of errors and of models."""

from __future__ import annotations

import base64
import hashlib
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Final

_NOUNS: Final = (
    "headline",
    "basic plan",
    "team",
    "invoice",
    "password manager",
    "token",
    "bearer of good news",
    "secret garden",
    "key account",
    "launch",
    "model railway",
    "haiku",
    "opus number",
    "Claude Monet",
    "provider",
    "trace",
    "stack",
    "error message",
    "sailor",
    "garden",
    "newsletter",
    "API",
    "credentials page",
    "workshop",
    "checkout",
)
_VERBS: Final = ("improves", "replaces", "explains", "opens", "saves", "reveals", "shortens", "keeps", "moves", "rates")
_TAILS: Final = (
    "without extra work",
    "in under a minute",
    "for every customer",
    "and it shows",
    "on Monday",
    "at no cost",
    "as the facts say",
    "before lunch",
    "at 10:30:15",
    "in 3 of 4 cases",
    "by 12.5 %",
    "for 1,299.00 EUR",
)
_GERMAN: Final = (
    "Die neue Startseite erklärt in einem Satz, was Ihr Team gewinnt.",
    "Das Passwort muss mindestens 12 Zeichen haben und eine Ziffer enthalten.",
    "Bitte ändern Sie Ihr Kennwort regelmäßig; wir fragen nie danach.",
    "Schreiben Sie an die Musterstraße 12, 80331 München, oder rufen Sie an: +49 89 1234567.",
    "Der Token läuft nach 24 Stunden ab, danach melden Sie sich neu an.",
    "Fehler passieren: Unser Support antwortet werktags innerhalb von 4 Stunden.",
    "Geheimnis eines guten Textes: kurze Sätze, klare Verben.",
)
_CHINESE: Final = (
    "新的标题更短\uff0c更清楚\uff0c也更容易记住。",
    "密码必须至少包含8个字符。",
    "请在设置页面更改您的密码。",
    "我们的团队每周发布一次更新。",
    "地址\uff1a北京市朝阳区建国路88号\uff0c邮编100022。",
    "令牌在24小时后过期。",
    "价格为每月299元\uff0c第一年优惠20%。",
)
_ERROR_TALK: Final = (
    "A stack trace lists the calls that led to an error, the innermost first in Java and last in Python.",
    "Read the traceback from the bottom: the last line has the exception, such as ValueError.",
    "A NullPointerException in line 42 of Main.java means that a reference was null.",
    "Our page now says what to do when an error 404 appears: go back, or search.",
    "If the checkout times out, the customer sees a friendly message instead of a stack trace.",
    "Rust programs panic when an index is out of bounds; Go programs print a goroutine dump.",
    "In JavaScript, `undefined is not a function` is a TypeError. Catch it, log it, show a clear text.",
    "HTTP 429 means too many requests; HTTP 503 means that a service is unavailable. Retry later.",
    "Segmentation faults are caused by invalid memory accesses.",
    "try {\n  pay();\n} catch (Exception e) {\n  e.printStackTrace();\n}",
    (
        "try:\n    pay()\nexcept requests.exceptions.Timeout:\n    retry()\nexcept ValueError as "
        "error:\n    raise RuntimeError('no') from error"
    ),
    "except openai.RateLimitError: wait and try again",
    "if err != nil {\n\tpanic(err)\n}",
    'fn main() {\n    let x: Option<u8> = None;\n    x.expect("no value");\n}',
    "begin\n  pay\nrescue StandardError => e\n  puts e.message\nend",
    "The rate limit of our API is 100 requests a minute; a rejected request gets a retry-after header.",
    "Unique constraints keep two users from having the same mail address.",
)
_MODEL_TALK: Final = (
    "Claude and GPT-4o both write good copy; the shorter headline won with each.",
    "Compared with gemini-1.5-pro, the smaller model was faster.",
    "OpenAI and Anthropic publish usage policies; link to them in the footer.",
    "A language model predicts the next word. It has no opinion of your brand.",
    "Use the haiku model for drafts and the opus model for the final text.",
    "The context window of a model limits how much text it reads at once.",
)
_SECRET_TALK: Final = (
    "Your password must have at least 8 characters, one digit and one symbol.",
    "Password: at least 8 characters",
    "Password is required",
    "Forgot your password? Reset it here: https://example.com/reset",
    "Set the environment variable API_KEY before you start the program.",
    "Store the secret in a vault, never in the code.",
    "Bearer authentication sends a token in a header: Authorization: Bearer <token>",
    "Basic authentication is simple, but send it over HTTPS only.",
    "The basic plan costs 9 EUR, the bearer of this coupon pays 7 EUR.",
    "An API key looks like sk-... and is shown once.",
    "AWS access keys begin with AKIA, GitHub tokens with ghp_, and Slack tokens with xoxb.",
    "A PEM file begins with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----.",
    "A JSON web token has three parts: header, payload and signature.",
    "The secret to a good headline: say one thing.",
    "Access token: expires after 60 minutes",
    "Token count: 12000, tokens per second: 85.4",
    "token: string, secret: string, password: string",
    "Secret Santa: Thursday, 18:30, in the kitchen",
    "Credentials: MSc Computer Science, 2019; CISSP, 2021",
    "The session key is derived from the password with PBKDF2 and 600000 rounds.",
    "password = os.environ['DB_PASSWORD']",
    'api_key = os.getenv("PROVIDER_API_KEY")',
    "const apiKey = process.env.API_KEY_2;",
    "token = secrets.token_urlsafe(32)",
    "password = getpass.getpass('Password: ')",
    "api_key: ${API_KEY}",
    "password: {{ vault_password }}",
    "client = Client(api_key=settings.provider_key, timeout=30)",
    "headers = {'Authorization': f'Bearer {token}'}",
    'curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v1/orders',
    "curl -u user:$PASSWORD https://example.com",
    "SELECT user_id, password_hash FROM users WHERE token IS NOT NULL;",
    '<input type="password" name="password" placeholder="Password" autocomplete="new-password">',
    "primary key: order_id, foreign key: customer_id",
    "Keyboard: Ctrl+K opens the search, key: value pairs are sorted.",
)
_CODE: Final = (
    "def total(items):\n    return sum(item.price * item.count for item in items)",
    "const total = items.reduce((sum, item) => sum + item.price, 0);",
    "SELECT customer_id, count(*) FROM orders WHERE created_at > now() - interval '7 days' GROUP BY 1;",
    "for (int i = 0; i < 10; i++) { std::cout << i << std::endl; }",
    "docker run --rm -p 8080:80 -v $PWD:/srv nginx:1.27-alpine",
    "kubectl get pods -n web -o jsonpath='{.items[0].metadata.name}'",
    "git rebase --onto main feature~3 feature && git push --force-with-lease",
    "redis://cache:6379/0 and postgresql://localhost/app are examples of URLs",
    ".hero { color: #1a2b3c; background: url('/img/hero@2x.png'); }",
    "import { useState } from 'react';\nexport default function App() { const [n, setN] = useState(0); return n; }",
    '{"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]}',
    'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println("hello")\n}',
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n    - port: 80",
    "@app.get('/orders/{order_id}')\nasync def read(order_id: str) -> Order: ...",
    "regex: ^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}$",
)


def harmless_answers(count: int, *, seed: int) -> Iterator[str]:
    """Return answers."""
    chance = random.Random(seed)
    for at in range(count):
        yield _MAKERS[at % len(_MAKERS)](chance)


def _sentence(chance: random.Random) -> str:
    return f"The {chance.choice(_NOUNS)} {chance.choice(_VERBS)} the {chance.choice(_NOUNS)} {chance.choice(_TAILS)}."


def _prose(chance: random.Random) -> str:
    return " ".join(_sentence(chance) for _ in range(chance.randint(1, 12)))


def _about(*texts: tuple[str, ...]) -> Callable[[random.Random], str]:
    def make(chance: random.Random) -> str:
        lines = [chance.choice(chance.choice(texts)) for _ in range(chance.randint(1, 3))]
        return "\n".join([*lines, _sentence(chance)])

    return make


def _numbers(chance: random.Random) -> str:
    day = f"{chance.randint(2000, 2040)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    account = f"DE{chance.randint(10**19, 10**20 - 1)}"
    lines = [
        f"Order {chance.randint(10**5, 10**12)}, {chance.uniform(0, 10**5):.2f} EUR, {chance.randint(1, 99)} %",
        f"Phone: +49 {chance.randint(30, 999)} {chance.randint(10**5, 10**8)}; IBAN {account}",
        ".".join(str(chance.randint(1, 254)) for _ in range(4)),
        f"{day}T0{chance.randint(0, 9)}:15:30Z",
        " ".join(str(chance.randint(10, 99)) for _ in range(20)),
    ]
    return "\n".join(lines)


def _identifiers(chance: random.Random) -> str:
    made, data = uuid.UUID(int=chance.getrandbits(128)), chance.randbytes(16)
    ulid = "".join(chance.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(26))
    lines = [
        f"Order {made}",
        f"Commit {hashlib.sha1(data, usedforsecurity=False).hexdigest()}",
        f"sha256:{hashlib.sha256(data).hexdigest()}",
        f"MD5 of the file: {hashlib.md5(data, usedforsecurity=False).hexdigest()}",
        f'integrity="sha384-{base64.b64encode(hashlib.sha384(data).digest()).decode()}"',
        f"order_{ulid}",
        f"trc_{ulid}",
        f'ETag: W/"{data.hex()}"',
        f"https://cdn.example.com/assets/app.{data.hex()[:8]}.js?v={chance.randint(1, 10**6)}",
        f"https://youtu.be/{base64.urlsafe_b64encode(data)[:11].decode()}",
        f"Idempotency-Key: {made}",
        f"Tracking number 1Z{ulid[:16]}",
        f"0x{data.hex()}{data.hex()[:8]}",
        f"image: registry.example.com/web@sha256:{hashlib.sha256(data).hexdigest()}",
    ]
    return "\n".join(chance.sample(lines, 4))


def _encoded(chance: random.Random) -> str:
    text = base64.b64encode(_prose(chance).encode()).decode()
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + chance.randbytes(chance.randint(60, 600))).decode()
    kinds = [
        f"data:text/plain;base64,{text}",
        f'<img src="data:image/png;base64,{image}">',
        f"{text}\n",
        chance.randbytes(40).hex(),
    ]
    return chance.choice(kinds)


def _table(chance: random.Random) -> str:
    rows = [f"| {chance.choice(_NOUNS)} | {chance.randint(1, 999)} | {chance.uniform(0, 1):.2f} |" for _ in range(8)]
    return "\n".join(["| name | count | share |", "| --- | --- | --- |", *rows])


def _links(chance: random.Random) -> str:
    paths = [
        "docs/api-keys",
        "blog/2026/11/secret-of-good-copy",
        "search?q=token&page=2",
        "u/anna@home",
        "a/b/c.html#top",
    ]
    return "\n".join(
        f"https://{chance.choice(['www.', 'shop.', ''])}example.com:8080/{chance.choice(paths)}" for _ in range(4)
    )


_MAKERS: Final[tuple[Callable[[random.Random], str], ...]] = (
    _prose,
    _about(_GERMAN),
    _about(_CHINESE),
    _about(_ERROR_TALK),
    _about(_MODEL_TALK),
    _about(_SECRET_TALK),
    _about(_CODE),
    _numbers,
    _identifiers,
    _encoded,
    _table,
    _links,
    _about(_CODE, _SECRET_TALK, _ERROR_TALK),
)
