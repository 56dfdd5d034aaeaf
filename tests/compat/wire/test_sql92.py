"""The SQL92 filter language says of every message what Apache's own says of it.

One JVM compiles and applies everything: expressions written by hand, for the rules that are easy to get
wrong, and many more that are put together at random from the words of the language, sensible and not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from cometmq.wire.sql92.expression import Sql92Error, compile_sql
from cometmq.wire.sql92.parser import parse
from cometmq.wire.sql92.values import EvaluationError
from tests.compat.apache import run_java

BY_HAND = r"""
a = 1|a <> 1|a = -1|a = 'x'|a <> 'x'|a = 1.5|a = TRUE|a = true|a <> FALSE|TRUE = a|NOT (TRUE = a)|1 = a|1 <> a|'x' = a|'x' <> a|1.5 = a
a = b|a <> b|b = a|a > b|a >= b|a < b|a <= b|NOT (a > b)|a = b OR c = 'x'|a > 1 > 2|a = b = c|(a = b) = TRUE|(a = 1) = (b = 1)
a > 1|a >= 1|a < 1|a <= 1|1 > a|1 >= a|1 < a|1 <= a|a > 1.5|1.5 > a|a > -1|-1 > a|a > 2147483647|a > 2147483648|a > -2147483648|a = -2147483648
a = 9223372036854775807|a = 9223372036854775808|a = -9223372036854775808|a > 3000000000|a > 5L|a > 5l|a = 0L|a = 007|a = 0|a = 00
a > 'x'|a > TRUE|a > NULL|a = NULL|NULL = a|a <> NULL|a > -'x'|a = -'x'|a = -b|-a IS NULL|-a = -b|-5 > a|- -5 = a|-(a = 1) IS NULL|+a = 1|+1 = a|-1.5 < a
a IS NULL|a IS NOT NULL|NOT a IS NULL|NOT (a IS NULL)|5 IS NULL|'x' IS NOT NULL|NULL IS NULL|NULL IS NOT NULL|(a = 1) IS NULL|a IS NULL IS NULL|a = 1 IS NULL
a|NOT a|a AND b|a OR b|NOT NOT a|TRUE|FALSE|NULL|NOT NULL|NOT TRUE|TRUE AND NULL|FALSE AND NULL|TRUE OR NULL|FALSE OR NULL|NULL OR TRUE|NULL AND FALSE
5|'x'|-a|-5|1.5|5 AND TRUE|TRUE AND 5|TRUE AND 'x'|NOT 5|NOT -a|NOT 'x'|(5)|(a)|((a)) = 1
a IN ('x')|a IN ('1', 'x')|a NOT IN ('1', 'x')|(a) IN ('1')|NOT a IN ('x')|NOT (a IN ('x'))|a IN ()|a IN (1)|a IN ('x',)|5 IN ('5')|a IN ('1','2','3','4','5','x','it''s')
a BETWEEN 1 AND 5|a NOT BETWEEN 1 AND 5|a BETWEEN 5 AND 1|a NOT BETWEEN 5 AND 1|a BETWEEN -1 AND 5|a BETWEEN 5 AND -1|a BETWEEN 1.5 AND 1|a BETWEEN 1 AND 1.5|a BETWEEN 1 AND 1
a BETWEEN 'x' AND 'y'|a BETWEEN 1 AND 'x'|a BETWEEN NULL AND 1|a BETWEEN b AND 5|a BETWEEN 1 AND b|a NOT BETWEEN b AND c|5 BETWEEN 1 AND 9|5 BETWEEN a AND 9|a BETWEEN TRUE AND FALSE
a BETWEEN 1 AND 5 AND b = 'x'|a BETWEEN 1 AND 5 OR b = 'x'|a BETWEEN (1) AND (5)|a BETWEEN 3000000000 AND 4000000000|a BETWEEN 1 AND 3000000000|(a = 1) BETWEEN 1 AND 2
a CONTAINS 'x'|a NOT CONTAINS 'x'|a STARTSWITH 'x'|a NOT STARTSWITH 'x'|a ENDSWITH 'x'|a NOT ENDSWITH 'x'|a CONTAINS ''|a NOT CONTAINS ''|a STARTSWITH ''|a ENDSWITH ''|a CONTAINS 1|a CONTAINS b
5 CONTAINS '5'|NOT (a CONTAINS 'x')|(a = 1) CONTAINS 'x'|'xyz' CONTAINS 'y'|-a CONTAINS 'x'|a contains 'x'|a Not Contains 'x'|NULL CONTAINS 'x'|a CONTAINS 'x' CONTAINS 'y'
a = 0.0|a = 0.|a = .0|a = 1.|a = .5|a = 1e3|a = 1E+3|a = 1e-3|a = 1e400|a = 4.9e-324|a = 1e-400|a > 0.5|a < 1.5|a <= 1e308|a = 1.0|1.0 = 1|1 = 1.0|3000000000 = 3000000000.0
1 = 1|1 = 2|1 <> 2|1 = 3000000000|3000000000 = 1|'5' = 5|5 = '5'|'x' = 5|5 = 'x'|TRUE = TRUE|TRUE = FALSE|TRUE = 1|1 = TRUE|1 <> TRUE|TRUE = 'x'|'true' = TRUE|'x' = TRUE|1.5 = TRUE
-5 = 'x'|-5 = '-5'|-1 = 1|-TRUE IS NULL|TRUE = -1|-1 = TRUE|9007199254740993 = 9007199254740992.0|2 > 1|1 > 2|1.5 > 1|'2' > 1|-2 < -1
a = 1 b|a = 1 AND|a = 1 OR|a = 1)|(a = 1|a = 1 #|a = 1 b #|a = 1 NOT|a = 1 IS|a = 1 IS NOT|a NOT foo|a NOT 1|a IS 1|a IS NOT 1|a foo b = 1|a 'x'|a 5|a (b)|a = 1 'x|a = 'x' 'y'
|   |()|(|)|=|a =|= 1|a = = 1|a == 1|a != 1|a < > 1|a <> 1|a <>1|a><1|a => 1|a =< 1|a + 1 = 2|a * 2 = 2|a LIKE 'x'|a = "x"|a = `x`|{a} = 1|a.b = 1|a-b = 1|a = 1;|a = 1,
a = ''|a <> ''|a = ''''|a = 'it''s'|a = 'it''|a = '''|a = 'x'''|'' = a|a IN ('')|a = 'ünï'|a = '汉字'|ü = 1|a = 1 ü|$a = 1|_a = 1|a$ = 1|A = 1|a_1 = 1|1a = 1
AND|NOT|IN ('x')|and = 1|between BETWEEN 1 AND 2|true|nUlL iS NuLl|is IS NULL|contains CONTAINS 'x'|a iN ('x')|a bEtWeEn 1 aNd 5|nota = 1|inx = 1|NOTa = 1
a = 1 /* c */|/* c */ a = 1|a /* = 2 */ = 1|a = 1 /* open|a = 1 /**/|a = 1 /***/ b|a = 1 /* * / */ AND b = 'x'|a/**/=/**/1|a = 1 / 2
NOT a = 1|NOT a > 1|NOT a <> 'x'|NOT a BETWEEN 1 AND 5|NOT a CONTAINS 'x'|NOT (a = 1)|NOT (a = 1 AND b = 'x')|NOT (a = 1 OR b = 'x')|NOT NOT (a = 1)
a = 1 AND b = 'x'|a = 1 OR b = 'x'|a = 1 AND b = 'x' OR c = 'y'|a = 1 OR b = 'x' AND c = 'y'|(a = 1 OR b = 'x') AND c = 'y'|c IS NULL AND a > 1|c IS NULL OR a > 1|a > 1 OR c IS NULL
a > 1 AND c IS NULL|NOT (c = 'y') OR a = 1|(c = 'y' AND a > 1) OR b = 'x'|(c = 'y' OR a > 1) AND b = 'x'|c > 1 AND a > 1 OR TRUE|a = 1 AND (b = 'x' OR (c = 'y' AND a > 0))
"""  # noqa: E501
WITH_LINES = [
    "a = 1 -- c",
    "a = 1 -- c\n",
    "a = 1 -- c\nAND b = 'x'",
    "a -- c\r= 1",
    "--\na = 1",
    "a\t=\f1\r\n",
    "a\v= 1",
]

MESSAGES: list[dict[str, str]] = [
    {},
    *(
        {"a": text}
        for text in ("", "0", "1", "-1", "+1", "5", "007", "1.0", "1.5", " 1", "1 ", "1e3", "x", "xyz")
    ),
    *(
        {"a": text}
        for text in ("zx", "it's", "'", "true", "TRUE", "false", "yes", "2147483647", "2147483648")
    ),
    *({"a": text} for text in ("-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808")),
    *(
        {"a": text}
        for text in ("NaN", "Infinity", "-Infinity", "nan", "inf", "0x1p1", "1d", "1f", "1L", "1_0")
    ),
    *(
        {"a": text}
        for text in ("4.9e-324", "1e400", "-0.0", "٣", "3000000000", "ünï", "汉字", "--1", "-", "+")
    ),
    {"a": "1", "b": "x"},
    {"a": "1", "b": "1"},
    {"a": "1", "b": "1.0", "c": "x"},
    {"a": "NaN", "b": "NaN"},
    {"a": "0.0", "b": "-0.0"},
    {"a": "2", "b": "10", "c": "y"},
    {"a": "x", "b": "x", "c": "y"},
    {"b": "x"},
    {"b": "1", "c": "true"},
    {"c": "y", "A": "1", "$a": "1", "_a": "1", "a$": "1", "a_1": "1", "nota": "1", "NOTa": "1"},
]


def by_hand() -> Iterator[str]:
    for line in BY_HAND.strip("\n").split("\n"):
        yield from line.split("|")
    yield from WITH_LINES


class RandomExpressions:
    """Expressions put together from the grammar, some of them damaged afterwards."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def make(self) -> str:
        words = self._condition(self._random.randint(0, 3)).split(" ")
        if self._random.random() < 0.25:
            place = self._random.randrange(len(words))
            kind = self._random.randrange(3)
            if kind == 0:
                del words[place]
            elif kind == 1:
                words.insert(
                    place, self._random.choice(("AND", "NOT", "(", ")", "=", "IN", "IS", "5", "'x'", "a"))
                )
            else:
                other = self._random.randrange(len(words))
                words[place], words[other] = words[other], words[place]
        return " ".join(words)

    def _condition(self, depth: int) -> str:
        pick = self._random.choice
        if depth == 0:
            return pick((self._comparison, self._comparison, self._test, self._value))()
        parts = [self._condition(depth - 1) for _ in range(self._random.randint(1, 3))]
        joined = f" {pick(('AND', 'OR'))} ".join(
            pick((part, f"( {part} )", f"NOT ( {part} )")) for part in parts
        )
        return pick((joined, joined, f"( {joined} ) IS NULL", f"( {joined} ) = {pick(('TRUE', 'FALSE'))}"))

    def _comparison(self) -> str:
        return f"{self._value()} {self._random.choice(('=', '<>', '>', '>=', '<', '<='))} {self._value()}"

    def _test(self) -> str:
        pick = self._random.choice
        word = pick(("", "NOT ")) + pick(("IN", "BETWEEN", "CONTAINS", "STARTSWITH", "ENDSWITH"))
        value = self._value()
        text = pick(("'x'", "'1'", "''"))
        if word.endswith("IN"):
            return f"{value} {word} ( '1' , {text} )"
        if word.endswith("BETWEEN"):
            return f"{value} {word} {self._value()} AND {self._value()}"
        return pick((f"{value} {word} {text}", f"{value} IS NULL", f"{value} IS NOT NULL"))

    def _value(self) -> str:
        pick = self._random.choice
        kind = self._random.random()
        if kind < 0.55:
            return pick(("a", "a", "b", "c", "- a", "+ b"))
        if kind < 0.85:
            return pick(("0", "1", "5", "- 1", "1.5", "- 1.5", "2147483648", "- 2147483648", "1e3", "+ 5"))
        return pick(("'x'", "'1'", "''", "TRUE", "FALSE", "NULL", "- 'x'"))


def our_outcomes(text: str) -> str:
    try:
        test = parse(text).test
    except Sql92Error:
        return "refused"
    letters = {True: "T", False: "F", None: "N"}
    outcomes = []
    for message in MESSAGES:
        try:
            outcomes.append(letters[test(message)])
        except EvaluationError:
            outcomes.append("E")
    return "".join(outcomes)


def test_every_expression_says_of_every_message_what_apache_says(tmp_path: Path) -> None:
    """B8: true, false, unknown and error, and which expressions are refused."""
    made = RandomExpressions(seed=533)
    expressions = list(dict.fromkeys([*by_hand(), *(made.make() for _ in range(1_500))]))
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"expressions": expressions, "messages": MESSAGES}))

    theirs = run_java("Sql92.java", str(asked), home=tmp_path).splitlines()

    ours = [our_outcomes(text) for text in expressions]
    differing = {
        text: (mine, apache)
        for text, mine, apache in zip(expressions, ours, theirs, strict=True)
        if mine != apache
    }
    assert differing == {}
    assert 200 < ours.count("refused") < len(ours) - 500, "both kinds have to be there"
    for text, letters in zip(expressions, ours, strict=True):
        if letters != "refused":
            expression = compile_sql(text)
            assert [expression.matches(message) for message in MESSAGES] == [each == "T" for each in letters]
