"""Tables, figures and one HTML file of what was measured, beside what was published."""

from masil.report.claims import Claim, claims
from masil.report.figures import (
    Curve,
    Point,
    accuracy_by_session,
    accuracy_by_time,
    base_and_novel,
    collapse_by_epoch,
    confusion,
    cosines_by_session,
)
from masil.report.leaderboard import leaderboards
from masil.report.measured import by_shots, select
from masil.report.order import order_table
from masil.report.page import html_report, write_report
from masil.report.pictures import Picture, pictures
from masil.report.published import PublishedRow, published, published_ablation, published_concept_cosines
from masil.report.render import html_table, latex_table, markdown_table, terminal_table
from masil.report.reproduction import (
    replication_pages,
    replication_pictures,
    reproduction_page,
    write_pictures,
    write_reproduction,
)
from masil.report.results import methods_markdown, read_results, result_name, results_latex, results_markdown, tables
from masil.report.style import check_drawing, inline_svg, look, save
from masil.report.table import Column, Group, Row, Table, Value, ranked
from masil.report.tables import ablation_table, balance_table, concept_table, session_table
from masil.report.traced import fault, ladder_faults
