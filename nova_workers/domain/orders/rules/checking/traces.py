"""Finds stack traces of common languages, and errors of providers, databases and networks. Pure.

A trace is known by its frames, whose form a language's runtime prints: a text about traces has none. Each pattern is
searched only where one of its literals occurs, begins at a literal or a line, and repeats within bounds.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from nova_workers.base.observability.secret_forms import LazyPattern


class Sign(NamedTuple):
    """A form of text.

    Attributes:
        name: What it is a sign of.
        literals: In lower case; one of them is in every text that has the form.
        pattern: Of the text in lower case, or, if `cased`, as it is.
        cased: Whether capitals matter.
    """

    name: str
    literals: tuple[str, ...]
    pattern: LazyPattern
    cased: bool


def _sign(name: str, literals: Sequence[str], pattern: str, *, cased: bool = False) -> Sign:
    # A text in lower case is searched several times as fast as one whose case is ignored.
    source = (
        pattern if cased else _UPPER.sub(lambda found: found[0] if found[0][0] == "\\" else found[0].lower(), pattern)
    )
    return Sign(name, tuple(literals), LazyPattern(source, re.MULTILINE), cased)


_UPPER: Final = re.compile(r"\\.|[A-Z]")


_PATH: Final = r"[^\s\"'`()<>|]{1,300}"

TRACES: Final = (
    _sign("Python", ["traceback (most recent"], r"Traceback \(most recent call last\):?[ \t]*(?:\n|$)"),
    _sign("Python", ['file "'], r"File \"[^\"\n]{1,300}\", line \d+"),
    _sign("Python", ["__main__", "<module>"], r"\bin <module>[ \t]*(?:\n|$)"),
    _sign("Python", ["<ipython", "---->"], r"^-{3,6}> \d+ \S.*\n|<ipython-input-\d"),
    _sign(
        "Java",
        [".java", ".kt", ".scala", ".groovy", ".clj", "native method", "unknown source"],
        r"\bat (?:[\w.$-]{1,80}/{1,2})?[\w.$<>/-]{2,300}\((?:[\w$-]{1,100}\.(?:java|kts?|scala|groovy"
        r"|cljc?)(?::\d+)?|Native Method|Unknown Source)\)",
    ),
    _sign(
        "Java",
        ["exception in thread", "caused by:"],
        r"\bException in thread \"[^\"\n]{1,100}\"|^\s{0,20}Caused by: (?:\w+\.){1,12}\w+(?:Exception|Error)\b",
    ),
    _sign("Java", [" more"], r"^\s{0,20}\.\.\. \d+ (?:more|common frames omitted)[ \t]*$"),
    _sign(
        "Java",
        ["java.", "javax.", "jakarta.", "kotlin.", "scala.", "org.", "com.", "io.", "net."],
        r"^\s{0,20}(?:java|javax|jakarta|kotlin|scala|org|com|io|net)\.(?:[a-z][\w]*\.){1,10}[A-Z]\w*(?:Exception"
        r"|Error|Throwable)(?:: \S|[ \t]*\n\s*at )",
        cased=True,
    ),
    _sign(
        "JavaScript",
        ["at "],
        r"\bat (?:async )?(?:(?:new )?[^\s()]{1,200} )?(?:\[as [^\]\n]{1,80}\] )?\(?(?:[^\s()]{0,300}(?:[/\\]"
        r"|\.(?:[cm]?[jt]sx?|vue|svelte|html?))[^\s()]{0,200}|<anonymous>|node:[\w/.-]{1,100}|(?:eval"
        r"|native)):\d+:\d+\)?",
    ),
    _sign(
        "JavaScript",
        ["processticksandrejections", "module._compile", "object.<anonymous>", "(<anonymous>)", "(index "],
        r"\bat (?:async )?[\w.$<> ]{1,120} \((?:<anonymous>|native|index \d+)\)|\bprocessTicksAndRejections \("
        r"|\bModule\._compile \(",
    ),
    _sign(
        "JavaScript",
        ["@http", "@file", "@webpack", "@/", "@app:"],
        r"^[\w.$<>/*\[\]]{0,120}@(?:https?|file|webpack|webpack-internal|app"
        r"|capacitor)?:?/{0,3}[^\s]{1,300}:\d+:\d+[ \t]*$",
    ),
    _sign("JavaScript", ["thrown at"], r"^Thrown at:[ \t\r]{0,20}\n\s{0,20}at "),
    _sign("Go", ["goroutine "], r"\bgoroutine \d+ (?:gp=\w+ m=\w+ (?:mp=\w+ )?)?\[[^\]\n]{1,80}\]:"),
    _sign("Go", [".go:"], r"(?<![\w./@~-])[\w./@~-]{1,300}\.go:\d+ \+0x[0-9a-f]+"),
    _sign("Go", [".go:"], r"^[ \t]{0,8}(?:/|[A-Za-z]:[\\/])[\w./\\@~-]{1,300}\.go:\d+[ \t]*$"),
    _sign(
        "Go",
        ["panic: ", "fatal error: "],
        r"^\s{0,8}(?:panic: (?:runtime error: |\S[^\n]{0,300}\[recovered\]|[^\n]{1,300}\n{1,2}goroutine)"
        r"|fatal error: (?:all goroutines|concurrent map|stack overflow|out of memory|unexpected signal))",
    ),
    _sign(
        "Ruby",
        [".rb:", ".rake:", ".erb:", ".ru:"],
        r"(?<![\w./@~+-])[\w./@~+-]{1,300}"
        r"\.(?:rb|rake|erb|ru|haml):\d+:in [`'\"\u2018][^\n'`\"\u2019]{1,200}['`\"\u2019]",
    ),
    _sign("Ruby", [".rb:"], r"\.rb:\d+:in \w"),
    _sign("C#", [":line "], r"\bat [\w.<>`\[\],+|$]{3,300}(?:\([^()\n]{0,400}\))? in [^\n]{1,300}:line \d+"),
    _sign(
        "C#",
        ["   at "],
        r"^ {2,8}at (?:[A-Z][\w`<>]{0,80}\.){1,12}[\w`<>.\[\],|+]{1,120}\([^()\n]{0,400}\)[ \t]*$",
        cased=True,
    ),
    _sign("C#", ["end of stack trace", "end of inner exception"], r"--- End of (?:stack trace|inner exception stack)"),
    _sign(
        "C#",
        ["unhandled exception", "system."],
        r"\bUnhandled exception[.:] (?:[A-Z]\w*\.){1,8}\w+(?:Exception|Error)\b"
        r"|^\s{0,8}System\.(?:\w+\.){0,6}\w+Exception: \S",
    ),
    _sign(
        "PHP",
        [".php"],
        r"^\s{0,8}#\d+ [^\n]{0,300}\.php\(\d+\): \S|\.php:\d+\)?[ \t\r]{0,20}\n(?:\[|#|Stack)|\bin "
        + _PATH
        + r"\.php(?: on line \d+|:\d+|\(\d+\) : eval)",
    ),
    _sign(
        "PHP",
        ["#0 ", "stack trace:", "php fatal", "php parse"],
        r"\bStack trace:\s{0,8}#0 |\bPHP (?:Fatal error|Parse error|Warning|Notice|Deprecated): |^#\d+ \{main\}",
    ),
    _sign("PHP", ["thrown in"], r"\bthrown in " + _PATH + r" on line \d+"),
    _sign(
        "Rust",
        ["panicked at"],
        r"\bthread '[^'\n]{1,100}' (?:\(\d+\) )?panicked at "
        r"|\bpanicked at (?:'[^'\n]{1,300}', )?[^\s]{1,300}:\d+(?::\d+)?",
    ),
    _sign("Rust", ["rust_backtrace"], r"note: run with `?RUST_BACKTRACE"),
    _sign("Rust", ["stack backtrace:"], r"^stack backtrace:[ \t\r]{0,20}\n\s{0,20}\d+: "),
    _sign(
        "Rust",
        [".rs:"],
        r"^\s{0,20}at [^\s]{1,300}\.rs:\d+(?::\d+)?[ \t]*$"
        r"|^\s{1,8}\d{1,3}: +(?:0x[0-9a-f]+ - )?(?:<?\w+>?::){1,12}\w",
    ),
    _sign(
        "C or C++",
        [" in ", "#0"],
        r"^\s{0,8}#\d+ +0x[0-9a-f]{4,16} in \S"
        r"|^#\d+ +\w[\w:<>~*& ]{0,200}\([^\n]{0,300}\) at [^\s]{1,300}:\d+[ \t]*$",
    ),
    _sign(
        "C or C++",
        ["sanitizer", "core dumped", "assertion `"],
        r"==\d+==\s?ERROR: \w+Sanitizer|\b(?:Segmentation fault|Aborted|Bus error) \(core dumped\)"
        r"|^\S{1,200}:\d+: [^\n]{1,200}: Assertion `",
    ),
    _sign("C or C++", ["(+0x", "+0x"], r"^\S{1,200}\((?:[\w@.:~]{0,200})?\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]"),
    _sign(
        "Swift or Objective-C",
        ["0x0000", "*** terminating", "fatal error:"],
        r"^\d{1,3} +[\w.-]{1,80} +0x0000[0-9a-f]+ |\*\*\* Terminating app due to uncaught exception"
        r"|\.swift:\d+: Fatal error: ",
    ),
    _sign(
        "Dart",
        ["(package:", "(dart:", "(file:"],
        r"^#\d+ +\S[^\n]{0,200} \((?:package|dart|file):[^)\n]{1,300}:\d+(?::\d+)?\)",
    ),
    _sign(
        "Elixir or Erlang",
        [".ex:", ".exs:", ".erl:", "** ("],
        r"\([\w.-]{1,80} \d+(?:\.\d+){1,3}[\w.-]{0,20}\) (?:lib|src|test|web)/[\w./-]{1,300}\.(?:exs?|erl):\d+: "
        r"|\*\* \((?:EXIT|exit|throw|stop|\w+(?:\.\w+)*Error)\b[^)\n]{0,200}\)|^\s{0,8}(?:lib|src"
        r"|test)/[\w./-]{1,300}\.exs?:\d+: (?:\(\w|[A-Z]\w*\.)",
    ),
    _sign("Perl", [" line "], r"\bat [^\s]{1,300}\.(?:p[lm]|cgi|t) line \d+\b"),
    _sign("Lua", ["stack traceback:"], r"^stack traceback:[ \t\r]{0,20}\n\s{0,20}\S"),
    _sign("Haskell", ["callstack (from"], r"\bCallStack \(from HasCallStack\):"),
    _sign("Julia", ["stacktrace:"], r"^Stacktrace:[ \t\r]{0,20}\n\s{0,20}\[1\]"),
    _sign(
        "PowerShell",
        ["char:", "categoryinfo", "fullyqualifiederrorid"],
        r"\bAt (?:line|[^\s:]{1,200}\.ps1):\d+ char:\d+|^\s{0,20}\+ (?:CategoryInfo|FullyQualifiedErrorId) +: ",
    ),
    _sign("a shell", [": line "], r"^[\w./~-]{1,200}(?:\.sh|/\w+): line \d+: \S"),
    _sign("a program", ["node.js v"], r"^Node\.js v\d+\.\d+\.\d+[ \t\r]{0,20}$"),
)
"""Stack traces, and the lines with which runtimes begin and end them."""

_LIBRARIES: Final = (
    r"anthropic|openai|google\.(?:genai|api_core|auth)|vertexai|botocore|boto3|litellm|mistralai|cohere|groq"
    r"|together|"
    r"httpx2?|httpcore2?|aiohttp|requests|urllib3?|asyncpg|psycopg2?|sqlalchemy|redis|celery|kombu|amqp"
    r"|pymongo|mysql|pydantic(?:_core)?|"
    r"jsonschema|fastapi|starlette|uvicorn|grpc|ssl|socket|asyncio|concurrent\.futures|nova_workers"
)
_PROVIDERS: Final = (
    r"anthropic|claude|openai|gpt|chatgpt|azure|bedrock|vertex|gemini|google|mistral|cohere|groq|deepseek"
    r"|openrouter|"
    r"together|fireworks|xai|grok|perplexity|minimax|dashscope|qwen|ollama|vllm|hugging ?face|replicate"
    r"|upstream|provider|the model"
)
_ERROR_TYPES: Final = (
    r"overloaded_error|rate_limit_error|authentication_error|permission_error|invalid_request_error"
    r"|not_found_error|api_error|"
    r"billing_error|timeout_error|server_error|request_too_large|tokens_limit_reached|insufficient_quota"
    r"|invalid_api_key|"
    r"rate_limit_exceeded|context_length_exceeded|model_not_found|content_policy_violation"
    r"|billing_hard_limit_reached|"
    r"api_connection_error|internal_server_error|service_unavailable_error|model_error|quota_exceeded"
)

INTERNAL_ERRORS: Final = (
    _sign(
        "an error of a provider",
        ["_error", "_exceeded", "_quota", "_large", "_reached", "_key", "_found", "_violation"],
        rf"[\"']?(?:type|code|kind|error)[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?(?:{_ERROR_TYPES})\b",
    ),
    _sign(
        "an error of a provider",
        ["_error", "_quota", "_exceeded"],
        rf"(?:^|[\s(\[\"'])(?:{_ERROR_TYPES})[\"']?\s{{0,2}}[:(] ?[\"']?[A-Z0-9]",
        cased=True,
    ),
    _sign(
        "an error of a provider",
        [
            "overloaded_error",
            "insufficient_quota",
            "context_length_exceeded",
            "hard_limit_reached",
            "request_too_large",
        ],
        (
            r"\b(?:overloaded_error|insufficient_quota|context_length_exceeded|billing_hard_limit_reached|requ"
            r"est_too_large)\b"
        ),
    ),
    _sign("an error of a provider", ["error code:"], r"\bError code: \d{3}\b(?: - |[^\n]{0,10}\{)"),
    _sign(
        "an error of a provider",
        [
            "resource_exhausted",
            "permission_denied",
            "unauthenticated",
            "deadline_exceeded",
            "unavailable",
            "invalid_argument",
            "failed_precondition",
        ],
        r"\bcode[\"']?: ?\d{3}\b[^{}]{0,400}\bstatus[\"']?: ?[\"'](?:RESOURCE_EXHAUSTED|PERMISSION_DENIED"
        r"|UNAUTHENTICATED|DEADLINE_EXCEEDED|UNAVAILABLE|INVALID_ARGUMENT|FAILED_PRECONDITION)\b"
        r"|\bstatus[\"']?: ?[\"']RESOURCE_EXHAUSTED\b"
        r"|\b[45]\d\d,? (?:RESOURCE_EXHAUSTED|PERMISSION_DENIED|UNAUTHENTICATED|DEADLINE_EXCEEDED|UNAVAILABLE"
        r"|INVALID_ARGUMENT)\b|\bRESOURCE_EXHAUSTED: ",
    ),
    _sign(
        "an error of a provider",
        ["api key", "x-api-key", "api_key"],
        r"\b(?:Incorrect API key provided|invalid x-api-key|API key not valid\. Please pass"
        r"|API key expired\. Please|Invalid API key provided|No API key provided\. You can set"
        r"|The api_key client option must be set|Could not resolve authentication method)",
    ),
    _sign(
        "an error of a provider",
        ["quota", "credit balance", "rate limit", "rate_limit"],
        r"\bYou exceeded your current quota\b|\bYour credit balance is too low\b|\bRate limit (?:reached"
        r"|exceeded) for \S|\bexceed your (?:organization|account)[\u2019']s rate limit"
        r"|\bResource has been exhausted \(|\bQuota exceeded for (?:quota )?metric\b"
        r"|\brate_?limit(?:ed)?:? retry after \d",
    ),
    _sign(
        "an error of a provider",
        ["context length", "too long", "context window", "max_tokens"],
        r"\bmaximum context length is \d|\bprompt is too long: \d|\binput length and `?max_tokens`? exceed"
        r"|\bexceeds the (?:available )?context (?:size|window)\b[^\n]{0,40}\d{4}",
    ),
    _sign(
        "an error of a provider",
        ["the model", "the server had", "server had an error", "is currently overloaded", "overloaded"],
        r"\bThe model [`'\"][^`'\"\n]{1,100}[`'\"] (?:does not exist|has been deprecated|is not available)"
        r"|\bThe server had an error (?:while )?processing your request|\bmodel is (?:currently )?overloaded\b"
        r"|\b529\b[^\n]{0,30}overloaded|\boverloaded\b[^\n]{0,30}\b529\b",
    ),
    _sign(
        "an error of a provider",
        [
            "throttlingexception",
            "modelerrorexception",
            "serviceunavailableexception",
            "accessdeniedexception",
            "validationexception",
            "modelnotreadyexception",
            "modeltimeoutexception",
            "clienterror",
        ],
        r"\b(?:Throttling|ModelError|ServiceUnavailable|AccessDenied|Validation|ModelNotReady|ModelTimeout"
        r"|ModelStreamError|ServiceQuotaExceeded)Exception\)? ?(?:when calling|: )"
        r"|\bAn error occurred \(\w+\) when calling the \w+ operation",
        cased=True,
    ),
    _sign("an error of a provider", ["req_"], r"\breq_(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{16,}\b"),
    _sign(
        "an error of a provider",
        ["request_id", "request-id", "request id"],
        r"[\"']?(?:x-)?request[_-]id[\"']?\s{0,2}[:=]\s{0,2}[\"']?(?=[\w-]{0,60}\d)[\w-]{12,}"
        r"|\(request id: (?=[\w-]{0,60}\d)[\w-]{8,}\)",
    ),
    _sign(
        "an error of a provider",
        ["org-", "organization"],
        r"\bin organization org-\w|\borg-(?=[A-Za-z]{0,30}[0-9])[A-Za-z0-9]{20,}\b",
    ),
    _sign(
        "an error of a provider",
        ["openai.com", "anthropic.com", "googleapis.com", "claude.com", "openrouter.ai", "aistudio.google"],
        r"\b(?:help|platform)\.openai\.com/(?:account|docs/guides/error)|\bconsole\.anthropic\.com/settings"
        r"|\bplatform\.claude\.com/settings|\bfor url:? ?[`'\"(]?https?://[\w.-]{0,100}(?:openai|anthropic"
        r"|googleapis|openrouter|mistral|groq|deepseek)",
    ),
    _sign(
        "an error of a provider",
        ["error", "overloaded", "rate", "quota", "timed", "timeout", "refused", "unavailable", "http", "status"],
        rf"\b(?:{_PROVIDERS})\b[^\n.!?]{{0,40}}\b(?:errors?|overloaded|rate.?limit(?:ed)?|quota|timed? ?out|refused"
        rf"|unavailable|returned|responded|status)\b[^\n.!?]{{0,40}}\b(?:401|402|403|404|408|413|429|5(?:00|02|03"
        rf"|04|20|22|24|29))\b"
        rf"|\b(?:HTTP|status(?: code)?|error(?: code)?)[ :=(/]{{1,3}}(?:1\.1 )?(?:401|402|403|404|408|413|429"
        rf"|5(?:00|02|03|04|20|22|24|29))\b[^\n!?]{{0,60}}\b(?:{_PROVIDERS})\b",
    ),
    _sign(
        "an error of a library",
        ["error", "exception", "timeout", "violation", "refused", "closed", "exhausted", "unavailable", "denied"],
        rf"(?<!except )(?<!raise )(?<!catch )(?<!import )\b(?:{_LIBRARIES})\.(?:\w+\.){{0,6}}\w*(?:Error|Exception"
        rf"|Timeout|Violation|Refused|Closed|Exhausted|Unavailable|Denied|Exceeded|Requests|Unauthenticated"
        rf")\b(?:[ \t]?:[ \t]+(?!pass\b|continue\b|break\b|return\b|raise\b"
        rf"|\.\.\.)\S|\([\"'])",
        cased=True,
    ),
    _sign(
        "an error of a library",
        ["error(", "exception(", "timeout("],
        r"\b(?:API(?:Status|Connection|Timeout|Response)?|RateLimit|Authentication|PermissionDenied|BadRequest"
        r"|InternalServer|Overloaded|HTTPStatus|Connect(?:ion)?|Read|Validation|Operational|Programming)(?:Error"
        r"|Timeout)\([\"'](?:Error code|Connection|Client error|Server error|Request|All connection|\d+ validation"
        r"|\()",
        cased=True,
    ),
    _sign(
        "an error of a network",
        [
            "client error '",
            "server error '",
            "connectionpool(",
            "max retries",
            "connect call failed",
            "econnrefused",
            "econnreset",
            "etimedout",
            "enotfound",
            "upstream connect",
            "errno ",
            "certificate_verify",
        ],
        r"\b(?:Client|Server) error '\d{3} [^'\n]{1,60}' for url|\bHTTPS?ConnectionPool\(host="
        r"|\bMax retries exceeded with url\b|\bConnect call failed \(|\bconnect E(?:CONNREFUSED|TIMEDOUT"
        r"|HOSTUNREACH) [\d:a-f]|\bread ECONNRESET\b|\bgetaddrinfo (?:ENOTFOUND|EAI_AGAIN) \S"
        r"|\bupstream connect error or disconnect|\[Errno -?\d{1,3}\] \S|\[SSL: CERTIFICATE_VERIFY_FAILED\]",
    ),
    _sign(
        "an error of a database",
        [
            "duplicate key value",
            'relation "',
            "deadlock detected",
            "server closed",
            "sqlstate",
            "ora-",
            "for user",
            "connection to server",
            "null value in column",
            "foreign key constraint",
            "wrongtype",
            "oom command",
            "noauth",
            "e11000",
        ],
        r"\bduplicate key value violates unique constraint [\"']|\brelation \"[^\"\n]{1,100}\" does not exist"
        r"|^(?:ERROR: +)?deadlock detected[ \t\r]{0,20}(?:\n|$)|\bDETAIL: +(?:Key|Process|Failing row)"
        r"|\bserver closed the connection unexpectedly|\bSQLSTATE\[|^ORA-\d{5}: "
        r"|\bpassword authentication failed for user [\"']|\bAccess denied for user '[^'\n]{0,80}'@'"
        r"|\bconnection to server at \"[^\"\n]{1,100}\"|\bnull value in column \"[^\"\n]{1,80}\" (?:of relation"
        r"|violates)|\bviolates foreign key constraint \"|\bWRONGTYPE Operation against|\bOOM command not allowed"
        r"|\bNOAUTH Authentication required|\bE11000 duplicate key",
    ),
    _sign(
        "an internal stop reason",
        ["_failed", "worker_lost"],
        r"\b(?:provider_failed|router_failed|ajv_failed|json_parse_failed|worker_lost)\b",
    ),
    _sign(
        "an internal setting",
        ["nova_", "_api_key", "nova:", "database_url", "redis_url", "nova_workers/", "nova_workers."],
        r"\bNOVA_[A-Z0-9]{2,40}__[A-Z0-9_]{2,60}|\bNOVA_(?:DATABASE|REDIS)_URL\b|\bnova:(?:run|lock|thread|order"
        r"|control)[:\w]|\bnova_workers[/.]\w+[/.]\w|^(?:export )?[A-Z][A-Z0-9_]{2,40}_(?:API_KEY|SECRET|TOKEN"
        r"|PASSWORD|DATABASE_URL)=(?!your|xxx|my|change|\.)[^\s$<\"'{(][^\s]{7,}|^(?:export )?(?:DATABASE|REDIS|AMQP"
        r"|BROKER)_URL=\w+://\S{6,}",
        cased=True,
    ),
)
"""Errors and settings that customers do not see."""


def finds(signs: Sequence[Sign], text: str, lower: str) -> str | None:
    """Return the name of the first sign that a text has; `lower` is the text in lower case."""
    for sign in signs:
        for literal in sign.literals:
            if literal in lower:
                if sign.pattern.get().search(text if sign.cased else lower):
                    return sign.name
                break
    return None
