"""Tables, figures and one HTML file of what was measured, beside what was published."""

from masil.report.canvas import check_drawing, save
from masil.report.facts import PublishedRow, published, published_ablation, published_concept_cosines
from masil.report.figures_curves import Curve, Point, accuracy_by_session, accuracy_by_time, base_and_novel
from masil.report.figures_geometry import collapse_by_epoch, confusion, cosines_by_session
from masil.report.page import html_report, write_report
from masil.report.pictures import Picture, pictures
from masil.report.provenance import fault
from masil.report.render_html import html_table
from masil.report.render_latex import latex_table
from masil.report.render_markdown import markdown_table
from masil.report.render_terminal import terminal_table
from masil.report.results import read_results, result_name, results_latex, results_markdown, tables
from masil.report.table import Cell, Column, Group, Row, Table
from masil.report.tables import ablation_table, balance_table, concept_table, session_table

__all__ = [
    "Cell",
    "Column",
    "Curve",
    "Group",
    "Picture",
    "Point",
    "PublishedRow",
    "Row",
    "Table",
    "ablation_table",
    "accuracy_by_session",
    "accuracy_by_time",
    "balance_table",
    "base_and_novel",
    "check_drawing",
    "collapse_by_epoch",
    "concept_table",
    "confusion",
    "cosines_by_session",
    "fault",
    "html_report",
    "html_table",
    "latex_table",
    "markdown_table",
    "pictures",
    "published",
    "published_ablation",
    "published_concept_cosines",
    "read_results",
    "result_name",
    "results_latex",
    "results_markdown",
    "save",
    "session_table",
    "tables",
    "terminal_table",
    "write_report",
]
