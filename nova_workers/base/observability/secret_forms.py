"""The forms of credentials: keys and tokens of vendors, private keys, passwords in URLs and in assignments.

One list serves log lines and results for customers. A form is searched only where one of its literals occurs, so a text
without any of them costs a few substring searches. Each pattern takes linear time: it starts at a literal or at the
beginning of a token, and what it repeats is bounded or excludes what follows.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from math import log2
from typing import Final, NamedTuple


class LazyPattern:
    """A regular expression that is compiled at its first use: most programs need few of many."""

    __slots__ = ("_compiled", "_flags", "_source")

    def __init__(self, source: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self._source = source
        self._flags = flags
        self._compiled: re.Pattern[str] | None = None

    def get(self) -> re.Pattern[str]:
        """Return the compiled pattern."""
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return self._compiled


class SecretForm(NamedTuple):
    """A kind of credential.

    Attributes:
        kind: What it is, for people.
        literals: In lower case; one of them is in every text that contains the form.
        pattern: Its first group identifies the credential without revealing it, and stays in log lines.
        random: Whether the rest has to look random: prefixes that are also words need it.
        one_token: Whether there is no blank in it.
    """

    kind: str
    literals: tuple[str, ...]
    pattern: LazyPattern
    random: bool = False
    one_token: bool = True


class FoundSecret(NamedTuple):
    """A credential in a text: what to replace is `text[start:end]`."""

    kind: str
    start: int
    end: int


# The beginning and the end of a token.
_B: Final = r"(?<![A-Za-z0-9])"
_W: Final = r"(?<![A-Za-z0-9_-])"
_E: Final = r"(?![A-Za-z0-9])"


_SHORT_CHARS: Final = 300
_LONG_TOKEN: Final = re.compile(r"[^\s\"'`<>()\[\]{},;]{12,}")


def _form(kind: str, literals: str, pattern: str, *, cased: bool = False, random: bool = False) -> SecretForm:
    lazy = LazyPattern(pattern, re.NOFLAG if cased else re.IGNORECASE)
    return SecretForm(
        kind, tuple(literals.split()), lazy, random, one_token=r"\s" not in pattern and " " not in pattern
    )


SECRET_FORMS: Final = (
    # A key of ours has a digit or a capital somewhere; the names of our own modules have neither.
    _form(
        "Nova Workers API key",
        "nova_",
        r"\b(nova_(?=[a-z_-]{0,60}[0-9A-Z])[A-Za-z0-9]{0,4})[A-Za-z0-9_-]{16,}",
        cased=True,
    ),
    _form("Nova Workers API key", "nova_", r"\b(nova_)(?=(?:[a-z_-]{0,20}[0-9]){3})[a-z0-9_-]{32,}"),
    _form("Anthropic API key", "sk-ant", r"\b(sk-ant-[A-Za-z0-9]{0,4})[A-Za-z0-9_-]{12,}"),
    _form("OpenAI API key", "sk-proj- sk-svcacct- sk-admin-", r"\b(sk-(?:proj|svcacct|admin)-)[A-Za-z0-9_-]{12,}"),
    _form(
        "API key",
        "sk-",
        r"\b(sk-(?!ant-|proj-|svcacct-|admin-)(?=[a-z_-]{0,60}[0-9A-Z])[A-Za-z0-9]{0,4})[A-Za-z0-9_-]{16,}",
        cased=True,
    ),
    _form(
        "API key", "sk-", r"\b(sk-(?!ant-|proj-|svcacct-|admin-)[a-z0-9-]{0,12}?)(?=[A-Z-]{0,60}[0-9])[A-Za-z0-9]{20,}"
    ),
    _form(
        "AWS access key id",
        "akia asia abia acca aroa aida",
        _B + r"((?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA))(?=[A-Z]{0,60}[0-9])[A-Z0-9]{16,17}" + _E,
    ),
    _form("AWS access key id", "AKIA ASIA".lower(), _B + r"((?:AKIA|ASIA))[A-Z2-7]{16}" + _E, cased=True),
    _form(
        "Amazon Bedrock API key",
        "bedrock-api-key- absk",
        _B + r"(bedrock-api-key-|ABSK)(?=[^\s]{0,40}[0-9])[A-Za-z0-9+/=_-]{20,}",
    ),
    _form("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", _B + r"(gh[pousr]_)[A-Za-z0-9_]{16,}"),
    _form("GitHub token", "github_pat_", _B + r"(github_pat_)[A-Za-z0-9_]{16,}"),
    _form(
        "GitLab token",
        "glpat- gldt- glrt- glcbt- glptt- glsoat- glft- gloas-",
        _B + r"(gl(?:pat|dt|rt|cbt|ptt|soat|ft|oas)-)[A-Za-z0-9_.-]{16,}",
    ),
    _form("Bitbucket or Atlassian token", "atatt3x atctt3x atbb", _B + r"(ATATT3x|ATCTT3x|ATBB)[A-Za-z0-9_=-]{16,}"),
    _form("Slack token", "xox xapp-", _B + r"(xox[a-z][.-]|xapp-)(?=[^\s]{0,40}[0-9])[A-Za-z0-9.-]{10,}"),
    _form(
        "Slack webhook", "hooks.slack.com", r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_+-]{16,}"
    ),
    _form("Discord webhook", "/api/webhooks/", r"(discord(?:app)?\.com/api/webhooks/)\d{6,}/[A-Za-z0-9_-]{16,}"),
    _form(
        "Discord token",
        ".",
        _W + r"([MNO][A-Za-z\d]{23,27}\.)[A-Za-z\d_-]{6}\.[A-Za-z\d_-]{27,40}" + _E,
        cased=True,
        random=True,
    ),
    _form("Microsoft Teams webhook", "webhook.office.com", r"(webhook\.office\.com/webhookb2/)[A-Za-z0-9@/-]{30,}"),
    _form("Telegram bot token", ":aa", _B + r"(\d{8,10}:)AA[A-Za-z0-9_-]{30,40}" + _E, cased=True),
    _form("Stripe key", "sk_live_ sk_test_ rk_live_ rk_test_", _B + r"((?:sk|rk)_(?:live|test)_)[A-Za-z0-9]{10,}"),
    _form("webhook secret", "whsec_", _B + r"(whsec_)[A-Za-z0-9+/=]{12,}"),
    _form("Square token", "sq0 eaaa", _B + r"(sq0[a-z]{3}-|EAAA)(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}"),
    _form("PayPal token", "access_token$production$", r"(access_token\$production\$)[a-z0-9$]{16,}"),
    _form("Razorpay key", "rzp_live_ rzp_test_", _B + r"(rzp_(?:live|test)_)[A-Za-z0-9]{10,}"),
    _form("Shopify token", "shpat_ shpca_ shppa_ shpss_", _B + r"(shp(?:at|ca|pa|ss)_)[A-Fa-f0-9]{16,}"),
    _form(
        "JSON web token",
        "eyj",
        _W + r"(eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{0,2000})?",
        cased=True,
    ),
    _form("JSON web token", "eyj", _W + r"(eyJ)[a-z0-9_-]{15,}\.eyJ[a-z0-9_-]{15,}(?:\.[a-z0-9_-]{0,2000})?"),
    _form(
        "private key",
        "private",
        r"(-----(?i:BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?)-----)"
        r"(?=[^-]{0,300}?(?<![A-Za-z0-9+/])(?=[A-Za-z]{0,15}[0-9+/]|[a-z]{0,15}[A-Z]{2})[A-Za-z0-9+/]{8})"
        r"[A-Za-z0-9+/=\s\\:,]{0,20000}(?:-----(?i:END)[ A-Za-z0-9]{0,40}-----)?",
        cased=True,
    ),
    _form("private key", "putty-user-key-file", r"(PuTTY-User-Key-File-\d:)[^\n]{0,200}(?:\n[^\n]{0,300}){0,60}"),
    _form("private key", "age-secret-key-1", r"(AGE-SECRET-KEY-1)[A-Z0-9]{20,}"),
    _form("Google API key", "aiza", _B + r"(AIza)[A-Za-z0-9_-]{30,}", cased=True),
    _form("Google API key", "aiza", _W + r"(AIza)(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _form("Google OAuth secret", "gocspx- ya29.", _B + r"(GOCSPX-|ya29\.)[A-Za-z0-9_.-]{16,}"),
    _form("Google OAuth token", "1//0", _B + r"(1//0)[A-Za-z0-9_-]{30,}", cased=True),
    _form("Firebase key", "aaaa", _B + r"(AAAA[A-Za-z0-9_-]{7}:)[A-Za-z0-9_-]{100,}", cased=True),
    _form("Azure storage key", "accountkey=", r"(AccountKey=)[A-Za-z0-9+/=]{8,}"),
    _form("Azure access signature", "sig=", r"([?&]sig=)(?=[^\s&]{0,60}[0-9])[A-Za-z0-9%+/]{30,}=?"),
    _form("Azure access key", "sharedaccesskey=", r"(SharedAccessKey=)[A-Za-z0-9+/=]{20,}"),
    _form("Azure client secret", "8q~ 7q~", _W + r"([A-Za-z0-9_.-]{3}[78]Q~)[A-Za-z0-9_.~-]{30,}", cased=True),
    _form(
        "Hugging Face token",
        "hf_ api_org_",
        _B + r"((?:hf|api_org)_)(?=[a-z_]{0,60}[0-9A-Z])[A-Za-z0-9]{20,}",
        cased=True,
    ),
    _form("Hugging Face or npm token", "hf_ npm_", _B + r"((?:hf|npm)_)(?=(?:[a-z]{0,20}[0-9]){3})[a-z0-9]{30,}"),
    _form("Replicate token", "r8_", _B + r"(r8_)[A-Za-z0-9]{20,}"),
    _form("Groq API key", "gsk_", _B + r"(gsk_)[A-Za-z0-9]{20,}"),
    _form("xAI API key", "xai-", _B + r"(xai-)(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9]{20,}"),
    _form("Perplexity API key", "pplx-", _B + r"(pplx-)(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9]{20,}"),
    _form("NVIDIA API key", "nvapi-", _B + r"(nvapi-)[A-Za-z0-9_-]{20,}"),
    _form("Fireworks API key", "fw_", _B + r"(fw_)[A-Za-z0-9]{20,}", random=True),
    _form("Cerebras API key", "csk-", _B + r"(csk-)[A-Za-z0-9]{20,}"),
    _form("Together API key", "tgp_v1_", _B + r"(tgp_v1_)[A-Za-z0-9_-]{20,}"),
    _form("LangSmith API key", "lsv2_", _B + r"(lsv2_[a-z]{2}_)[A-Za-z0-9_]{20,}"),
    _form("Pinecone API key", "pcsk_", _B + r"(pcsk_)[A-Za-z0-9_]{20,}"),
    _form("Tavily API key", "tvly-", _B + r"(tvly-)(?=[a-z-]{0,60}[0-9A-Z])[A-Za-z0-9-]{16,}"),
    _form("npm token", "npm_", _B + r"(npm_)(?=[a-z_]{0,60}[0-9A-Z])[A-Za-z0-9]{20,}", cased=True),
    _form("PyPI token", "pypi-ag", _B + r"(pypi-Ag)[A-Za-z0-9_-]{16,}"),
    _form("RubyGems token", "rubygems_", _B + r"(rubygems_)[a-f0-9]{20,}"),
    _form("NuGet key", "oy2", _B + r"(oy2)(?=[a-z]{0,60}[0-9])[a-z0-9]{43}" + _E),
    _form("Docker token", "dckr_", _B + r"(dckr_(?:pat|oat)_)[A-Za-z0-9_-]{16,}"),
    _form("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", _B + r"(do[opr]_v1_)[a-f0-9]{20,}"),
    _form("Heroku key", "hrku-", _B + r"(HRKU-)[A-Za-z0-9_-]{20,}"),
    _form("SendGrid key", "sg.", _B + r"(SG\.)[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", cased=True),
    _form("Mailgun key", "key-", _W + r"(key-)(?=[a-f]{0,60}[0-9])[a-f0-9]{32}" + _E),
    _form("Mailchimp key", "-us", _W + r"([a-f0-9]{4})[a-f0-9]{28}-us\d{1,2}" + _E),
    _form("Brevo key", "xkeysib-", _B + r"(xkeysib-)[a-f0-9]{20,}"),
    _form("Twilio key", "sk", _B + r"(SK)(?=[a-f]{0,60}[0-9])[a-f0-9]{32}" + _E),
    _form("Linear key", "lin_api_ lin_oauth_", _B + r"(lin_(?:api|oauth)_)[A-Za-z0-9]{16,}"),
    _form(
        "Notion token",
        "ntn_ secret_",
        _B + r"(ntn_|secret_)(?=[a-z_]{0,60}[0-9A-Z])[A-Za-z0-9]{30,}",
        cased=True,
        random=True,
    ),
    _form("Airtable token", "pat", _B + r"(pat[A-Za-z0-9]{14}\.)[a-f0-9]{40,}"),
    _form("Figma token", "figd_", _B + r"(figd_)[A-Za-z0-9_-]{16,}"),
    _form("Databricks token", "dapi", _B + r"(dapi)(?=[a-f]{0,60}[0-9])[a-f0-9]{32}(?:-\d)?" + _E),
    _form("New Relic key", "nrak- nral- nrii-", _B + r"(NR(?:AK|AL|II)-)[A-Za-z0-9_-]{16,}"),
    _form("Sentry token", "sntrys_ sntryu_", _B + r"(sntry[su]_)[A-Za-z0-9+/=_-]{20,}"),
    _form("Grafana token", "glsa_ glc_", _B + r"(glsa_|glc_)(?=[a-z_]{0,60}[0-9A-Z])[A-Za-z0-9+/=_]{20,}", cased=True),
    _form("Vault token", "hvs. hvb. hvr.", _B + r"(hv[sbr]\.)[A-Za-z0-9_-]{20,}"),
    _form("Terraform token", ".atlasv1.", r"([A-Za-z0-9]{14}\.atlasv1\.)[A-Za-z0-9_=-]{30,}"),
    _form("Doppler token", "dp.", _B + r"(dp\.(?:pt|st|ct|sa|scim|audit)\.)[A-Za-z0-9_.-]{20,}"),
    _form("Postman key", "pmak-", _B + r"(PMAK-)[a-f0-9-]{20,}"),
    _form("Dropbox token", "sl.", _B + r"(sl\.)(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{60,}", cased=True),
    _form("Alibaba Cloud key", "ltai", _B + r"(LTAI)[A-Za-z0-9]{12,}" + _E, cased=True),
    _form("Tencent Cloud key", "akid", _B + r"(AKID)(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{28,}" + _E, cased=True),
    _form("Supabase key", "sbp_ sb_secret_", _B + r"(sbp_|sb_secret_)[A-Za-z0-9_-]{20,}"),
    _form("Netlify token", "nfp_", _B + r"(nfp_)[A-Za-z0-9]{20,}"),
    _form("Fly.io token", "fm1r_ fm2_ fo1_", _B + r"(fm1r_|fm2_|fo1_)[A-Za-z0-9+/=_,-]{20,}"),
    _form("PlanetScale token", "pscale_", _B + r"(pscale_(?:tkn|pw|oauth)_)[A-Za-z0-9_.-]{16,}"),
    _form("Pulumi token", "pul-", _B + r"(pul-)[a-f0-9]{32,}"),
    _form("Plaid token", "access-", r"(access-(?:production|sandbox|development)-)[a-f0-9-]{30,}"),
    _form("1Password token", "ops_ey", _B + r"(ops_ey)[A-Za-z0-9+/=_-]{20,}"),
    _form("CircleCI token", "ccipat_ ccipprj_", _B + r"(CCIP(?:AT|RJ)_)[A-Za-z0-9_]{16,}"),
    _form("Tailscale key", "tskey-", _B + r"(tskey-[a-z]{2,9}-)[A-Za-z0-9-]{12,}"),
    _form("HubSpot token", "pat-na1- pat-eu1-", _B + r"(pat-(?:na|eu)\d-)[a-f0-9-]{30,}"),
    _form("Contentful token", "cfpat-", _B + r"(CFPAT-)[A-Za-z0-9_-]{20,}"),
    _form("Meta access token", "eaac eaab", _B + r"(EAA[A-Z])(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{40,}", cased=True),
    _form("ngrok key", "ak_ cr_", _B + r"((?:ak|cr)_)(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{27,30}" + _E, random=True),
    _form(
        "authorization header",
        "authorization",
        r"((?<![A-Za-z])(?:proxy-)?authorization[\"']?\s{0,3}[=:]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest"
        r"|negotiate|apikey|ssws)\s{1,3})?)"
        r"(?![$<{\[]|bearer\b|basic\b|token\b|your)(?=[^\s\"',;]{0,200}[0-9._=-])[^\s\"',;)}>]{6,}",
    ),
    _form(
        "cookie",
        "cookie:",
        r"(\b(?:set-)?cookie:\s{0,3}[\w.-]{1,40}=)(?=[^\s;]{0,60}[0-9])[^\s;,\"'<>$]{12,}",
    ),
    _form(
        "password in a connection string",
        "password pwd",
        r"(\b(?:host|server|data source|user id|user|uid|dbname|database)\s?=[^\n,()]{1,100}?[\s;](?:password|pwd)\s?=)"
        r"\s?(?![$<{\[%*])[^\s;&,()\"']{4,}",
    ),
    _form("password hash", "2a$ 2b$ 2y$ 5$ 6$ y$ argon2", r"(\$(?:2[aby]|5|6|y|argon2id?)\$)[^\s:\"']{16,}"),
    _form("bearer token", "bearer", _B + r"(bearer\s{1,3})(?=[A-Za-z_~+/=.-]{0,400}[0-9])[A-Za-z0-9._~+/=-]{16,}"),
    _form(
        "basic credentials",
        "basic",
        _B + r"(basic\s{1,3})(?=[^\s]{0,60}[A-Z0-9=])(?![a-z]+\b[^=])[A-Za-z0-9+/]{8,}={1,2}",
    ),
    _form(
        "password in a URL",
        "://",
        r"\b([a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>]{0,100}:)(?![$<{\[]|pass(?:word)?@|pw@|\*+@|x+@"
        r"|\.{3})[^\s/@\"'<>][^\s/\"'<>]{0,200}(?=@[A-Za-z0-9\[])",
    ),
)
"""Forms that are credentials wherever they occur."""

_PASSWORDS: Final = (
    r"pass(?:word|wd|phrase|code)s?|pwd|passwort|kennwort|mot\s?de\s?passe|contraseña|senha|密码|密碼|口令|パスワード"
)
_KEYS: Final = (
    r"api[\s_-]?(?:key|token|secret)|access[\s_-]?(?:key|token)(?:[\s_-]?id)?"
    r"|secret(?:[\s_-]?(?:access[\s_-]?)?key)?"
    r"|client[\s_-]?secret|auth(?:entication|orization)?[\s_-]?(?:key|token)|private[\s_-]?key"
    r"|signing[\s_-]?(?:key|secret)"
    r"|refresh[\s_-]?token|bearer[\s_-]?token|session[\s_-]?(?:key|token|secret)|security[\s_-]?token"
    r"|encryption[\s_-]?key"
    r"|master[\s_-]?key|account[\s_-]?key|credentials?|token|密钥|密鑰|令牌|zugangsschlüssel|api-schlüssel|geheimnis"
)
_ASSIGNED: Final = re.compile(
    rf"(?<![A-Za-z])(?:(?P<pass>{_PASSWORDS})|(?P<key>{_KEYS}))(?![A-Za-z])"
    # A long name such as DB_PASSWORD_PROD, then what assigns.
    r"[A-Za-z0-9_]{0,24}[\"'`*]{0,3}\s{0,2}(?P<sign>=>|:=|==?|\uff1a|:|\bis\b|\bwas\b|\blautet\b|\bist\b|\best\b"
    r"|\bes\b|是|为)\s{0,3}"
    r"(?P<open>[\"'`*]{0,2})(?P<value>[^\s\"'`<>,;\uff0c。]{5,400})",
    re.IGNORECASE,
)
_ASSIGNED_LITERALS: Final = (
    "pass pwd kennwort contrase senha token secret key credential geheimnis schlüssel 密 口令 令牌 パスワード".split()
)

_CODE_VALUE: Final = re.compile(
    r"[$<{\[(%&*.#@|]|\\|[A-Za-z_$][\w$]*(?:\(|\[|::|->)"
    r"|(?:[A-Za-z_$][A-Za-z_$0-9]{0,40}\.){1,6}[A-Za-z_$][\w$]*(?:[(\[,;)]|$)"
    r"|https?://|(?:/|\./|~/)[\w./-]|(?:true|false|null|none|nil|undefined|string|str|text|your|my|the"
    r"|required|optional|example|changeme|redacted|hidden|none)\b"
)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_HEX: Final = re.compile(r"(?:0x)?[0-9a-f]{16,}", re.IGNORECASE)
_DATE: Final = re.compile(r"\d{4}-\d\d|\d{1,2}[:.]\d\d|[\d.,:/%-]+[A-Za-z]{0,3}$")
_MEASURE: Final = re.compile(
    r"\d{4}-\d\d-\d\d\S*|\d{1,2}[:.]\d\d\S*|[\d.,:/%+-]*[.,:/%+-][\d.,:/%+-]*|\d{1,3}\+?-?[^\W\d_]+(?:-[^\W\d_]+)*"
)
"""A date, a time, or a number with a unit, such as ``8-digit``."""
_WORDS: Final = re.compile(r"[^\W\d_]+(?:[-_/.'\u2019][^\W\d_]+)*")
_LEAST_PASSWORD_CHARS: Final = 6
_LEAST_KEY_CHARS: Final = 12

_VENDOR_SHAPE: Final = re.compile(
    r"(?<![A-Za-z0-9_-])((?:[A-Za-z][A-Za-z0-9]{1,11}[_-]){1,4})(?P<body>[A-Za-z0-9]{20,200})(?![A-Za-z0-9_-])"
)
_VENDOR_WORDS: Final = re.compile(
    r"(?:^|[_-])(?:sk|pk|rk|ak|key|apikey|api|token|tok|secret|sec|pat|live|prod|auth|access|priv|private|svc"
    r"|cred|pass|bot|app|oauth)[_-]",
    re.IGNORECASE,
)
_NAMES_A_SECRET: Final = re.compile(r"(?:^|[_-])(?:sk|key|apikey|token|secret|pat|live)[_-]$", re.IGNORECASE)


def find_secrets(text: str) -> Iterator[FoundSecret]:
    """Return the credentials of a text, in no order; they may overlap."""
    lower = text.lower()
    if any(literal in lower for literal in _ASSIGNED_LITERALS):
        yield from _assigned(text)
    # Every other form has a long token, and most tokens of a text are short.
    if _LONG_TOKEN.search(text) is None:
        return
    yield from _vendor_shaped(text)
    tokens = lower if len(text) < _SHORT_CHARS else "\n".join(_LONG_TOKEN.findall(lower))
    for form in SECRET_FORMS:
        searched = tokens if form.one_token else lower
        for literal in form.literals:
            if literal in searched:
                break
        else:
            continue
        for match in form.pattern.get().finditer(text):
            if not form.random or _is_random(match[0]):
                yield FoundSecret(form.kind, match.end(1), match.end())


def _is_random(text: str) -> bool:
    """Return whether a token looks random: letters in both cases and digits, mixed, and no few characters repeated."""
    letters = sum(map(str.isalpha, text))
    lower, upper = sum(map(str.islower, text)), sum(map(str.isupper, text))
    digits = len(text) - letters
    return bool(lower and upper and digits >= 2) and _entropy(text) >= 3.3 and _changes(text) >= 5


def _assigned(text: str) -> Iterator[FoundSecret]:
    for match in _ASSIGNED.finditer(text):
        value = match["value"].rstrip(".:!?)]}*")
        is_word = match["pass"] is not None
        # A quote of a value in code, in JSON or in a sentence.
        quoted = bool(match["open"])
        # A token in a link is for the reader of the link.
        in_link = match.start() > 0 and text[match.start() - 1] in "?&" and match["key"] == "token"
        if not in_link and _is_value(value, password=is_word, quoted=quoted, sign=match["sign"]):
            start = match.start("value")
            kind = "password" if is_word else "assigned credential"
            yield FoundSecret(kind, start, start + len(value))


def _is_value(value: str, *, password: bool, quoted: bool, sign: str) -> bool:
    """Return whether what is assigned to a name of a secret is one, and not code, a type, a rule or a word."""
    if _CODE_VALUE.match(value.lower()) and not (quoted and _is_mixed(value)):
        return False
    in_words = sign.isalpha()
    return _is_password(value, quoted, in_words) if password else _is_key(value, quoted, in_words)


def _is_password(value: str, quoted: bool, in_words: bool) -> bool:
    if len(value) < _LEAST_PASSWORD_CHARS or _MEASURE.fullmatch(value):
        return False
    if any(map(str.isdigit, value)) or (quoted and not in_words and not value.isalpha()):
        return True
    return not _WORDS.fullmatch(value) and any(map(str.isalpha, value))


def _is_key(value: str, quoted: bool, in_words: bool) -> bool:
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    if len(value) < _LEAST_KEY_CHARS or not has_both or _DATE.match(value):
        return False
    if _UUID.fullmatch(value) or _HEX.fullmatch(value):
        return not in_words
    return _is_mixed(value) or ((quoted or (not in_words and value.isalnum())) and _changes(value) >= 3)


def _is_mixed(value: str) -> bool:
    """Return whether digits and letters alternate as they do in keys, and not as in names with a number."""
    return len(value) >= 12 and _entropy(value) >= 2.8 and _changes(value) >= 4


def _vendor_shaped(text: str) -> Iterator[FoundSecret]:
    """Find keys of vendors that have no form here: words that name a key, then a random body."""
    for match in _VENDOR_SHAPE.finditer(text):
        prefix, body = match[1], match["body"]
        if not _VENDOR_WORDS.search(prefix):
            continue
        is_hex = len(body) >= 32 and _HEX.fullmatch(body) and _NAMES_A_SECRET.search(prefix)
        is_mixed = len(body) >= 24 and _NAMES_A_SECRET.search(prefix) and _changes(body) >= 8
        if is_hex or is_mixed or (_is_random(body) and _entropy(body) >= 3.5):
            yield FoundSecret("key of a vendor", match.start("body"), match.end())


def _entropy(text: str) -> float:
    """Return the entropy of a text's characters, in bits a character."""
    size = len(text)
    return -sum((count := text.count(char)) / size * log2(count / size) for char in set(text))


def _changes(text: str) -> int:
    """Return how often a text changes between digits, small letters and capitals."""
    kinds = [0 if char.isdigit() else 1 if char.islower() else 2 for char in text]
    return sum(first != second for first, second in pairwise(kinds))
