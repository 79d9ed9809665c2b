import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from masil.report import Column, Group, Row, Table, Value, html_table, latex_table, markdown_table, terminal_table

TABLE = Table(
    "50 % of A_B & <C>",
    "method",
    (Column("final", "X"), Column("average", "X"), Column("final", "Y")),
    (
        Group("published", (Row("a|b", (Value(1.0), Value(22.5, best=True), Value(-3.0, form="+.2f"))),)),
        Group(
            "measured",
            (
                Row("long_name", (Value(1.0, 0.5), Value(words="JSON", link="a%20b.json"), Value(2.0)), "resnet_18"),
                Row("[bold]none"),
            ),
        ),
    ),
    ("A note of 100 %.",),
)


def test_markdown_is_aligned_and_has_a_table_a_group():
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
    assert "[JSON](a%20b.json)" in blocks[1][2]


def test_latex_is_escaped_and_balanced():
    text = latex_table(TABLE)
    assert r"\caption{50 \% of A\_B \& \textless{}C\textgreater{} \textit{published}}" in text
    assert r"long\_name {\scriptsize (resnet\_18)} & 1.00{\tiny$\pm$0.50} & JSON & 2.00 \\" in text
    assert r"\textbf{22.50} & $-$3.00 \\" in text
    assert r"\multicolumn{3}{c}{\textit{not run}} \\" in text
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in text
    assert text.count("\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%\n\\begin{tabular}") == 2
    assert text.count("\\end{tabular}}") == 2
    assert text.count(r"\begin{") == text.count(r"\end{") == 4  # a float a group
    assert text.endswith("A note of 100 \\%.\\par}\n")
    for line in text.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 3


@given(st.text(st.characters() | st.sampled_from("\\{}&%$#_~^"), min_size=1))
def test_no_text_leaves_latex_unbalanced(text):
    table = Table("t", text, (Column("c"),), (Group("g", (Row("r", (Value(1.0),)),)),))
    heading = next(line for line in latex_table(table).splitlines() if line.endswith(r"& c \\"))[: -len(r" & c \\")]
    safe = re.sub(r"\\[a-zA-Z]+\{\}|\\[{}&%$#_]|\$\\?[a-z|\-]+\$", "", heading)
    assert not set(safe) & set("\\{}&%$#_~^")


def test_html_is_well_formed_and_says_what_each_heading_is_for(parse):
    text = html_table(TABLE)
    assert "<caption>50 % of A_B &amp; &lt;C&gt;</caption>" in text
    assert all("scope" in attributes for attributes in parse(text).all("th"))
    assert '<td class="none" colspan="3">not run</td>' in text
    assert "<td><b>22.50</b></td>" in text
    assert '<td><a href="a%20b.json">JSON</a></td>' in text


def test_the_terminal_shows_names_as_they_are():
    text = io.StringIO()
    Console(file=text, width=120).print(terminal_table(TABLE))
    shown = text.getvalue()
    for piece in ("50 % of A_B & <C>", "published", "measured", "[bold]none", "not run", "1.00 ± 0.50", "A note"):
        assert piece in shown
