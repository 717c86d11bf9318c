"""Named parameters: real ones and text that only resembles one, as examples and as properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.ledger.named_sql import bind, compile_statement

_INSERT_THREAD = "INSERT INTO threads (id, tenant_id) VALUES (:thread_id, :tenant_id)"

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
# What may stand beside a parameter: none of it opens a quote or a comment.
PLAIN = st.text(st.sampled_from("abc019_ \n\t(),=<>+*%[]{}.;#&|^~@!?"), max_size=12)
INNER = st.text(st.sampled_from("ab1 \n:$*(),=<>"), max_size=12)
OPAQUE = st.one_of(
    INNER.map(lambda text: f"'{text}'"),
    INNER.map(lambda text: f"'{text}''{text}'"),
    INNER.map(lambda text: f" E'{text}\\'{text}'"),
    INNER.map(lambda text: f'"{text}"'),
    INNER.map(lambda text: f"/*{text}*/"),
    INNER.map(lambda text: "--" + text.replace("\n", "") + "\n"),
    INNER.map(lambda text: " $of$" + text.replace("$", "") + "$of$ "),
    NAMES.map(lambda name: f"::{name} "),
    NAMES.map(lambda name: f" :={name} "),
    st.integers(0, 99).map(lambda number: f"[1:{number}]"),
)


@pytest.mark.parametrize(
    ("statement", "text", "names"),
    [
        ("SELECT 1", "SELECT 1", ()),
        ("id = :run_id", "id = $1", ("run_id",)),
        (":a, :b, :a", "$1, $2, $1", ("a", "b")),
        ("(:a)", "($1)", ("a",)),
        (":ids::text[]", "$1::text[]", ("ids",)),
        ("$$ :a $$ $b$ :b $$ $b$ :c", "$$ :a $$ $b$ :b $$ $b$ $1", ("c",)),
        ("':a' ':it''s :b' :c", "':a' ':it''s :b' $1", ("c",)),
        (r"E'\' :a' :b", r"E'\' :a' $1", ("b",)),
        (r"'\' || :a", r"'\' || $1", ("a",)),
        ('":a" "x"":b" :c', '":a" "x"":b" $1', ("c",)),
        ("-- :a's\n:b", "-- :a's\n$1", ("b",)),
        ("/* :a's \n * */ :b", "/* :a's \n * */ $1", ("b",)),
        ("x[1:2] + x[:low::int]", "x[1:2] + x[$1::int]", ("low",)),
        ("f(a := :a, b := 'x')", "f(a := $1, b := 'x')", ("a",)),
        ("a #- b - -:c / :d", "a #- b - -$1 / $2", ("c", "d")),
    ],
)
def test_a_parameter_gets_a_number_and_all_else_is_unchanged(statement: str, text: str, names: tuple[str, ...]) -> None:
    assert compile_statement(statement) == (text, names)


@given(st.lists(st.one_of(PLAIN, OPAQUE, NAMES.map(lambda name: (name,)))))
def test_of_any_statement_only_the_parameters_change(parts: list[str | tuple[str]]) -> None:
    names: list[str] = []
    statement = expected = ""
    for part in parts:
        if isinstance(part, str):
            statement += part
            expected += part
            continue
        (name,) = part
        names += [name] * (name not in names)
        statement += f" :{name} "
        expected += f" ${names.index(name) + 1} "
    assert compile_statement(statement) == (expected, tuple(names))


@given(st.dictionaries(NAMES, st.integers(), max_size=40), st.randoms())
def test_each_value_goes_to_the_number_of_its_name(values: dict[str, int], random: object) -> None:
    names = list(values)
    random.shuffle(names)  # type: ignore[attr-defined]  # hypothesis gives it no other type
    text, arguments = bind(", ".join(f":{name}" for name in names), values)
    assert text == ", ".join(f"${number + 1}" for number in range(len(names)))
    assert arguments == [values[name] for name in names]


def test_a_statement_has_the_same_text_at_each_call() -> None:
    first, _ = bind(_INSERT_THREAD, {"thread_id": "thr_1", "tenant_id": "ten_1"})
    second, _ = bind(_INSERT_THREAD, {"tenant_id": "ten_2", "thread_id": "thr_2"})
    assert first is second


def test_a_missing_value_is_named_with_its_statement() -> None:
    with pytest.raises(TypeError, match=r"test_named_sql\._INSERT_THREAD \('INSERT INTO .*no value for 'tenant_id'\."):
        bind(_INSERT_THREAD, {"thread_id": "thr_1"})


def test_an_unknown_name_is_named_with_its_statement() -> None:
    values = {"thread_id": "thr_1", "tenant_id": "ten_1", "tenant": "ten_1"}
    with pytest.raises(TypeError, match=r"test_named_sql\._INSERT_THREAD .*: no parameter named 'tenant'\."):
        bind(_INSERT_THREAD, values)


def test_a_misspelled_name_is_reported_as_missing_and_unknown() -> None:
    with pytest.raises(TypeError, match="no value for 'tenant_id' and no parameter named 'tenant'"):
        bind(_INSERT_THREAD, {"thread_id": "thr_1", "tenant": "ten_1"})


@pytest.mark.parametrize("statement", ["id = $1", "'open", '"open', "/* a /* nested */ one */", "/* open"])
def test_an_ambiguous_statement_is_refused(statement: str) -> None:
    with pytest.raises(ValueError, match="write parameters as :name"):
        compile_statement(statement)
