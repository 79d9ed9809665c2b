import io
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from masil.report import Cell, Column, Group, Row, Table, html_table, latex_table, markdown_table, terminal_table
from masil.report.render_latex import tex
from masil.report.render_markdown import code

TABLE = Table(
    "50 % of A_B & <C>",
    "method",
    (Column("final", "X"), Column("average", "X"), Column("final", "Y")),
    (
        Group("published", (Row("a|b", (Cell(1.0), Cell(22.5, best=True), Cell(-3.0, form="+.2f"))),)),
        Group("measured", (Row("long_name", (Cell(1.0, 0.5), Cell(), Cell(2.0)), "resnet_18"), Row("[bold]none"))),
    ),
    ("A note of 100 %.",),
)


class Checker(HTMLParser):
    """Every element is closed, in order."""

    VOID = frozenset({"meta", "br", "use", "path", "rect", "image"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_markdown_is_aligned_and_has_a_table_a_group() -> None:
    text = markdown_table(TABLE)
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 2
    for block in blocks:
        assert len({len(line) for line in block}) == 1
        assert re.fullmatch(r"\| -+ \| -+: \| -+: \| -+: \|", block[1])
    assert blocks[0][0] == "| method | X final | X average | Y final |"
    assert text.index("*published*") < text.index(blocks[0][0]) < text.index("*measured*")
    assert r"| a\|b" in blocks[0][2]
    assert "**22.50**" in blocks[0][2]
    assert "not run" in blocks[1][3]
    assert r"long\_name (resnet\_18)" in blocks[1][2]


def test_code_holds_any_backticks() -> None:
    assert code("a") == "`a`"
    assert code("a`b") == "``a`b``"
    assert code("`a") == "`` `a ``"


def test_latex_is_escaped_and_balanced() -> None:
    text = latex_table(TABLE)
    assert r"\caption{50 \% of A\_B \& \textless{}C\textgreater{}}" in text
    assert r"long\_name {\scriptsize (resnet\_18)} & 1.00{\tiny$\pm$0.50} & -- & 2.00 \\" in text
    assert r"\textbf{22.50} & $-$3.00 \\" in text
    assert r"\multicolumn{3}{c}{\textit{not run}} \\" in text
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 3
    for line in text.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 3


def test_what_is_too_long_for_a_page_goes_on_in_another_table() -> None:
    group = Group("measured", tuple(Row(f"method {at}", (Cell(1.0),)) for at in range(30)))
    text = latex_table(Table("Long", "method", (Column("two words"),), (group, group), ("A note.",)))
    assert r"\caption{Long (1 of 2)}" in text
    assert r"\caption{Long (2 of 2)}" in text
    assert text.count("A note.") == 1
    assert text.count("method 7 &") == 2
    assert r"method & \shortstack[r]{two\\words} \\" in text


@given(st.text(st.characters() | st.sampled_from("\\{}&%$#_~^")))
def test_no_text_leaves_latex_unbalanced(text: str) -> None:
    safe = re.sub(r"\\[a-zA-Z]+\{\}|\\[{}&%$#_]|\$\\?[a-z|\-]+\$", "", tex(text))
    assert not set(safe) & set("\\{}&%$#_~^")


def test_html_is_well_formed_and_says_what_each_heading_is_for() -> None:
    text = html_table(TABLE)
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert "<caption>50 % of A_B &amp; &lt;C&gt;</caption>" in text
    assert all("scope" in attributes for tag, attributes in checker.seen if tag == "th")
    assert '<td class="none" colspan="3">not run</td>' in text
    assert "<td><b>22.50</b></td>" in text


def test_the_terminal_shows_names_as_they_are() -> None:
    text = io.StringIO()
    Console(file=text, width=120).print(terminal_table(TABLE))
    shown = text.getvalue()
    for piece in ("50 % of A_B & <C>", "published", "measured", "[bold]none", "not run", "1.00 ± 0.50", "A note"):
        assert piece in shown
