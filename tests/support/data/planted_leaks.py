"""Answers of models with something in them that no customer may see. Every credential is made up."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable, Mapping
from typing import Final

_UPPER: Final = "Q7ZK3N5T9R2M4WBX"
_MIXED: Final = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7bC9dE2fG4hJ6k"
_HEX: Final = "3f9a1c7e5b2d8064f1a3c5e7092b4d6f8a1c3e5f"


def _cut(*parts: str) -> str:
    """Return the parts together: whole, they would be found by scanners of repositories."""
    return "".join(parts)


CREDENTIALS: Final[Mapping[str, str]] = {
    "Nova Workers API key": _cut("nova_", _MIXED[:43]),
    "Anthropic API key": _cut("sk-ant-", "api03-", _MIXED),
    "OpenAI project key": _cut("sk-", "proj-", _MIXED[:20], "_", _MIXED[20:44]),
    "OpenAI key": _cut("sk-", _MIXED[:48]),
    "OpenRouter key": _cut("sk-", "or-v1-", _HEX, _HEX[:24]),
    "AWS access key id": _cut("AKIA", _UPPER),
    "AWS example key": _cut("AKIA", "IOSFODNN7EXAMPLE"),
    "AWS temporary key": _cut("ASIA", _UPPER),
    "AWS secret": _cut("aws_secret_access_key = wJalrXUtnFEMI/", "K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "GitHub token": _cut("ghp_", _MIXED[:36]),
    "GitHub fine-grained token": _cut("github_pat_", "11ABCDEFG0", _MIXED),
    "GitHub app token": _cut("ghs_", _MIXED[:36]),
    "GitLab token": _cut("glpat-", _MIXED[:20]),
    "Slack bot token": _cut("xoxb-", "123456789012-1234567890123-", _MIXED[:24]),
    "Slack webhook": _cut("https://hooks.slack.com/services/", "T0AB12CD3/B0EF45GH6/", _MIXED[:24]),
    "Discord webhook": _cut("https://discord.com/api/webhooks/", "123456789012345678/", _MIXED),
    "Stripe key": _cut("sk_", "live_", _MIXED[:24]),
    "Stripe restricted key": _cut("rk_", "live_", _MIXED[:24]),
    "Stripe webhook secret": _cut("whsec_", _MIXED[:32]),
    "JWT": _cut(
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
        ".eyJzdWIiOiIxMjM0NTY3ODkwIn0",
        ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ),
    "PEM": _cut(
        "-----BEGIN RSA ", "PRIVATE KEY-----\nMIIEowIBAAKCAQEA", _MIXED, "\n", _MIXED, "\n-----END RSA PRIVATE KEY-----"
    ),
    "OpenSSH key": _cut("-----BEGIN OPENSSH ", "PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA", _MIXED),
    "PEM in one line": _cut("-----BEGIN ", "PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0B", _MIXED, "\\n"),
    "Google API key": _cut("AIza", "SyD4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T"),
    "Google OAuth secret": _cut("GOCSPX-", _MIXED[:28]),
    "Google access token": _cut("ya29.", _MIXED),
    "Azure storage key": _cut("AccountName=x;AccountKey=", _MIXED, _MIXED[:37], "=="),
    "Hugging Face token": _cut("hf_", _MIXED[:34]),
    "Groq key": _cut("gsk_", _MIXED, "abc"),
    "xAI key": _cut("xai-", _MIXED, _MIXED[:20]),
    "Replicate token": _cut("r8_", _MIXED[:37]),
    "npm token": _cut("npm_", _MIXED[:36]),
    "PyPI token": _cut("pypi-AgEIcHlwaS5vcmcC", _MIXED),
    "SendGrid key": _cut("SG.", _MIXED[:22], ".", _MIXED[:43]),
    "Twilio key": _cut("SK", _HEX[:32]),
    "Mailgun key": _cut("key-", _HEX[:32]),
    "Telegram token": _cut("1234567890:AA", _MIXED[:33]),
    "Shopify token": _cut("shpat_", _HEX[:32]),
    "DigitalOcean token": _cut("dop_v1_", _HEX, _HEX[:24]),
    "Databricks token": _cut("dapi", _HEX[:32]),
    "Notion token": _cut("ntn_", _MIXED[:46]),
    "Linear key": _cut("lin_api_", _MIXED[:40]),
    "Vault token": _cut("hvs.", _MIXED[:24]),
    "a vendor without a form": _cut("acme_live_", "secret_", _MIXED[:32]),
    "another vendor without a form": _cut("zyx-api-key-", _MIXED[:30]),
    "bearer token": _cut("Authorization: Bearer ", _MIXED[:30]),
    "basic credentials": _cut("Authorization: Basic ", base64.b64encode(b"admin:hunter22").decode()),
    "password in a URL": _cut("postgresql://nova:", "hunter2@db.internal:5432/nova"),
    "password of a cache": _cut("redis://:", "s3cr3tpw@cache:6379/0"),
    "password": _cut("The password is ", "Sommer2026!"),
    "password in German": _cut("Das Passwort lautet ", "Sommer2026!"),
    "password in Chinese": _cut("数据库密码\uff1a", "Zq8x2026pw"),
    "password in code": _cut('password = "', 'correct-horse-9"'),
    "password in JSON": _cut('{"user": "admin", "password": "', 'hunter2"}'),
    "API key in JSON": _cut('{"api_key": "', _HEX[:32], '"}'),
    "API key in words": _cut("Our API key is ", _MIXED[:32], "."),
    "client secret": _cut("client_secret=", _MIXED[:40]),
    "key in the environment": _cut("export PROVIDER_API_KEY=", _HEX[:32]),
    "Bedrock key": _cut("ABSK", _MIXED, "=="),
    "Atlassian token": _cut("ATATT3x", _MIXED),
    "Discord token": _cut("MTk4NjIyNDgzNDcxOTI1MjQ4", ".Cl2FMQ.", "ZnCjm1XVW7vRze4b7Cq4se7kKWs"),
    "Teams webhook": _cut("https://acme.webhook.office.com/webhookb2/", _HEX[:32], "@", _HEX[:32]),
    "Square token": _cut("sq0atp-", _MIXED[:22]),
    "PayPal token": _cut("access_token$production$", _HEX[:16], "$", _HEX[:32]),
    "Razorpay key": _cut("rzp_live_", _MIXED[:14]),
    "PuTTY key": _cut("PuTTY-User-Key-File-3", ": ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n", _MIXED),
    "age key": _cut("AGE-SECRET-KEY-1", _UPPER, _UPPER, _UPPER),
    "Google refresh token": _cut("1//0", _MIXED),
    "Firebase key": _cut("AAAA", "abcDEF1:", _MIXED, _MIXED, _MIXED),
    "Azure signature": _cut("https://a.blob.core.windows.net/b?sv=2024-01-01&sig=", _MIXED[:43], "%3D"),
    "Azure service bus": _cut("SharedAccessKeyName=root;SharedAccessKey=", _MIXED[:43], "="),
    "Azure client secret": _cut("abc8Q~", _MIXED[:34]),
    "Perplexity key": _cut("pplx-", _MIXED),
    "NVIDIA key": _cut("nvapi-", _MIXED),
    "Fireworks key": _cut("fw_", _MIXED[:24]),
    "Cerebras key": _cut("csk-", _HEX),
    "Together key": _cut("tgp_v1_", _MIXED),
    "LangSmith key": _cut("lsv2_pt_", _HEX[:32], "_", _HEX[:10]),
    "Pinecone key": _cut("pcsk_", _MIXED),
    "Tavily key": _cut("tvly-", "dev-", _MIXED[:32]),
    "RubyGems token": _cut("rubygems_", _HEX),
    "NuGet key": _cut("oy2", "a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r8s9t0u1v"),
    "Docker token": _cut("dckr_pat_", _MIXED[:27]),
    "Heroku key": _cut("HRKU-", _MIXED),
    "Mailchimp key": _cut(_HEX[:32], "-us21"),
    "Brevo key": _cut("xkeysib-", _HEX),
    "Airtable token": _cut("pat", _MIXED[:14], ".", _HEX, _HEX[:24]),
    "Figma token": _cut("figd_", _MIXED[:40]),
    "New Relic key": _cut("NRAK-", _UPPER, _UPPER[:11]),
    "Sentry token": _cut("sntrys_", _MIXED),
    "Grafana token": _cut("glsa_", _MIXED[:32], "_", _HEX[:8]),
    "Terraform token": _cut(_MIXED[:14], ".atlasv1.", _MIXED),
    "Doppler token": _cut("dp.pt.", _MIXED[:43]),
    "Postman key": _cut("PMAK-", _HEX[:24], "-", _HEX[:34]),
    "Dropbox token": _cut("sl.", _MIXED, _MIXED),
    "Alibaba key": _cut("LTAI", _MIXED[:20]),
    "Tencent key": _cut("AKID", _MIXED[:32]),
    "Supabase key": _cut("sbp_", _HEX),
    "Netlify token": _cut("nfp_", _MIXED[:40]),
    "Fly.io token": _cut("fm2_", _MIXED),
    "PlanetScale token": _cut("pscale_tkn_", _MIXED[:43]),
    "Pulumi token": _cut("pul-", _HEX),
    "Plaid token": _cut("access-", "production-3f9a1c7e-5b2d-8064-f1a3-c5e7092b4d6f"),
    "1Password token": _cut("ops_ey", _MIXED),
    "CircleCI token": _cut("CCIPAT_", _MIXED[:22], "_", _HEX),
    "Tailscale key": _cut("tskey-", "auth-kAbC123CNTRL-", _MIXED[:32]),
    "HubSpot token": _cut("pat-", "na1-3f9a1c7e-5b2d-8064-f1a3-c5e7092b4d6f"),
    "Contentful token": _cut("CFPAT-", _MIXED[:43]),
    "Meta token": _cut("EAAB", _MIXED),
    "cookie": _cut("Set-Cookie: session=", _HEX[:24], "; HttpOnly"),
    "connection string": _cut("Server=db;User Id=nova;Password=", "letmein;"),
    "password hash": _cut("root:$6$", "rounds=5000$abcdefgh$", _MIXED),
    "short API key": _cut("x-api-key: ", "0123456789abcdef"),
    "ngrok key": _cut("ak_", _MIXED[:27]),
}
"""Credentials by kind."""

TRACES: Final[Mapping[str, str]] = {
    "Python": 'Traceback (most recent call last):\n  File "/app/orders.py", line 3, in run\n    go()\nValueError: no',
    "Python, one frame": 'Sorry, it failed: File "/srv/app/engine.py", line 88, in call',
    "Java": (
        'Exception in thread "main" java.lang.NullPointerException: Cannot invoke "String.length()"\n'
        "\tat com.acme.billing.Invoice.total(Invoice.java:42)\n\tat com.acme.Main.main(Main.java:9)"
    ),
    "Java, native": "at java.base/jdk.internal.misc.Unsafe.park(Native Method)",
    "Kotlin": "\tat com.acme.api.RouterKt$route$1.invokeSuspend(Router.kt:17)\n\t... 12 more",
    "Java, cause": "Caused by: org.postgresql.util.PSQLException: FATAL: too many connections",
    "JavaScript": (
        "TypeError: Cannot read properties of undefined (reading 'id')\n    at render (/app/src/view.js:10:15)"
    ),
    "Node": (
        "Error: boom\n    at Object.<anonymous> (/srv/index.js:3:9)\n"
        "    at Module._compile (node:internal/modules/cjs/loader:1369:14)"
    ),
    "TypeScript": "    at async handler (file:///app/dist/order.mjs:120:11)",
    "Firefox": "render@https://app.example.com/static/main.js:10:15",
    "Go": (
        "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 "
        "[running]:\nmain.main()\n\t/app/main.go:8 +0x1d"
    ),
    "Go, frames": "main.handle(0xc000010000)\n\t/srv/orders/handle.go:112 +0x2f4",
    "Ruby": "app/models/order.rb:12:in `total': undefined method `price' for nil:NilClass (NoMethodError)",
    "Ruby 3.4": "lib/billing.rb:7:in 'Billing#charge': boom (RuntimeError)",
    "C#": (
        "Unhandled exception. System.NullReferenceException: Object reference not set to an instance of an object.\n"
        "   at Acme.Orders.Total(Order order) in C:\\src\\Orders.cs:line 42"
    ),
    "C#, no files": "   at System.Threading.Tasks.Task.Execute()\n   at Acme.Program.Main(String[] args)",
    "PHP": (
        "PHP Fatal error:  Uncaught Error: Call to undefined function foo() in /var/www/index.php:3\n"
        "Stack trace:\n#0 {main}\n  thrown in /var/www/index.php on line 3"
    ),
    "PHP, frames": "#1 /var/www/app/Order.php(42): App\\Order->total()",
    "Rust": "thread 'main' panicked at src/main.rs:4:9:\nindex out of bounds: the len is 3 but the index is 5",
    "Rust, former": "thread 'tokio-runtime-worker' panicked at 'called `Option::unwrap()`', src/lib.rs:10",
    "Rust, frames": (
        "   4: core::panicking::panic_fmt\n             at /rustc/90c54/library/core/src/panicking.rs:72:14"
    ),
    "C": "#1  0x00005555555551a9 in main () at main.c:12",
    "sanitizer": "==4242==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010",
    "Swift": "Orders/Order.swift:12: Fatal error: Index out of range",
    "Dart": "#0      main (package:acme/main.dart:12:5)",
    "Elixir": (
        "** (ArithmeticError) bad argument in arithmetic expression\n    (acme 0.1.0) "
        "lib/acme/order.ex:12: Acme.Order.total/1"
    ),
    "Perl": "Can't locate object method at /srv/app/order.pl line 12.",
    "Python, last frame": "in <module>\nKeyError: 'price'",
    "IPython": "----> 3 total(order)\n      4 print(order)",
    "Java, exception": "java.lang.IllegalStateException: Expected BEGIN_OBJECT but was STRING",
    "JavaScript, console": "Thrown at:\n    at total",
    "Go, paths": "\t/usr/local/go/src/net/http/server.go:3210",
    "Ruby, block": "order.rb:12:in block in total",
    "C#, rethrown": "--- End of stack trace from previous location ---",
    "Rust, note": "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
    "Rust, backtrace": "stack backtrace:\n   0: rust_begin_unwind",
    "C, symbols": "./orders(total+0x1d)[0x55d0c8a3]",
    "Lua": "stack traceback:\n\torder.lua:12: in function 'total'",
    "Haskell": "CallStack (from HasCallStack):\n  error, called at Order.hs:12:9 in main:Order",
    "Julia": "Stacktrace:\n [1] total(o::Order)",
    "PowerShell": "At line:1 char:5\n+ CategoryInfo          : ObjectNotFound",
    "a shell": "deploy.sh: line 12: orders: command not found",
    "Node's last line": "Node.js v22.11.0",
}
"""Stack traces by language."""

ERRORS: Final[Mapping[str, str]] = {
    "Anthropic": '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    "Anthropic, library": (
        "anthropic.RateLimitError: Error code: 429 - {'type': 'error', 'error': {'type': 'rate_limit_error'}}"
    ),
    "Anthropic, credit": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
    "Anthropic, request": "The call failed (request id: req_011CSHoEeqs5C35K2UUqR7Fy).",
    "OpenAI": '{"error": {"message": "Slow down", "type": "requests", "code": "rate_limit_exceeded"}}',
    "OpenAI, quota": "You exceeded your current quota, please check your plan and billing details.",
    "OpenAI, key": "Incorrect API key provided: sk-abc***xyz. You can find your API key at your account page.",
    "OpenAI, limit": "Rate limit reached for gpt-4o in organization org-abc on tokens per min (TPM): Limit 30000",
    "OpenAI, context": (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000."
    ),
    "Google": '{"error": {"code": 429, "message": "Resource has been exhausted", "status": "RESOURCE_EXHAUSTED"}}',
    "Bedrock": (
        "botocore.errorfactory.ThrottlingException: An error occurred (ThrottlingException) when calling "
        "the InvokeModel operation"
    ),
    "HTTP": "Client error '401 Unauthorized' for url 'https://api.anthropic.com/v1/messages'",
    "in words": "I could not finish: the provider returned error 529 while I was writing.",
    "network": "HTTPSConnectionPool(host='api.openai.com', port=443): Max retries exceeded with url: /v1/responses",
    "database": 'asyncpg.exceptions.UniqueViolationError: duplicate key value violates unique constraint "runs_pkey"',
    "stop reason": "The order ended with provider_failed.",
    "setting": "Set NOVA_MODEL__API_KEY on the worker.",
    "Anthropic, type": "overloaded_error: Overloaded",
    "OpenAI, server": "The server had an error while processing your request. Sorry about that!",
    "a code": "The answer was insufficient_quota.",
    "OpenAI, library": "RateLimitError('Error code: 429')",
}
"""Errors of providers and of the fleet."""

PROMPT: Final = (
    "You are the copywriter of Acme, and you answer in the voice of a calm sailor.\n"
    "Never mention the discount code of the winter sale.\n"
    "Score every proposal by warmth, clarity and rhythm before you answer."
)
"""A policy's prompt."""


def _base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


DISGUISES: Final[Mapping[str, Callable[[str], str]]] = {
    "as it is": lambda text: text,
    "in capitals": str.upper,
    "reversed": lambda text: text[::-1],
    "base64": _base64_of,
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 in lines": lambda text: base64.encodebytes(text.encode()).decode(),
    "base64 twice": lambda text: _base64_of(_base64_of(text)),
    "base64, reversed": lambda text: _base64_of(text)[::-1],
    "zero width": "\u200b".join,
    "word joiners": "\u2060".join,
    "soft hyphens": "\u00ad".join,
    "full width": lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    "hexadecimal": lambda text: text.encode().hex(),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "percent": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "entities": lambda text: "".join(f"&#{ord(c)};" for c in text),
    "escapes": lambda text: "".join(f"\\u{ord(c):04x}" for c in text),
    "codes": lambda text: " ".join(str(byte) for byte in text.encode()),
    "letters apart": lambda text: " ".join(text.replace(" ", "")),
    "tags": lambda text: "fine" + "".join(chr(0xE0000 + ord(c)) for c in text if " " <= c <= "~"),
}
"""Ways to hide a text."""
