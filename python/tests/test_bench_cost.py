"""What a data centre costs: the published totals, what they follow from, and what is said of a wrong file."""

import itertools
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mez_bench import cli
from mez_bench.cost import reading
from mez_bench.cost.bill import PARTS, Bill, bill, price, with_faster
from mez_bench.cost.plan import Plan, Rates
from mez_bench.cost.reading import PlanError
from mez_bench.cost.sensitivity import CHANGE, swings
from mez_bench.cost.statements import CAPTION_USD, statements
from mez_bench.experiment import Outcome
from mez_bench.experiments.cost import COST
from mez_bench.run import Run, Subject

BENCH = [sys.executable, "-m", "mez", "bench"]


@pytest.fixture(scope="module")
def rates() -> Rates:
    """Return the paper's rates."""
    return reading.rates(reading.PAPER_RATES)


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, Plan]:
    """Return the paper's data centres: homogeneous, targeted."""
    return reading.plan(reading.SHIPPED[0]), reading.plan(reading.SHIPPED[1])


@pytest.fixture(scope="module")
def bills(plans: tuple[Plan, Plan], rates: Rates) -> tuple[Bill, Bill]:
    """Return what they cost."""
    return bill(plans[0], rates), bill(plans[1], rates)


def run(subject: Subject) -> Outcome:
    """Run the experiment without a terminal."""
    with Run(True, None, Console(stderr=True), subject) as given:
        return COST.run(given)


def test_the_papers_data_centres_cost_what_the_paper_says(bills: tuple[Bill, Bill]) -> None:
    """To the dollar for equipment, within rounding for a year."""
    homogeneous, targeted = bills
    assert homogeneous.equipment_usd == 33_577_760
    assert targeted.equipment_usd == 27_878_431
    assert round(homogeneous.year_total_usd / 1e6, 1) == 12.9
    assert round(targeted.year_total_usd / 1e6, 1) == 10.8
    assert homogeneous.total_usd == pytest.approx(3 * homogeneous.year_total_usd)


def test_quantities_follow_from_nodes_and_nodes_from_rates(bills: tuple[Bill, Bill]) -> None:
    """Table 3 and Table 4 have these; the files hold none of them but the 16 core switches."""
    homogeneous, targeted = bills
    assert homogeneous.nodes == targeted.nodes == {"producer": 289, "consumer": 578, "broker": 157}
    assert [line.quantity for line in homogeneous.lines] == [1024, 1024, 1024, 160, 3072]
    named = {line.item.name: line.quantity for line in targeted.lines}
    assert list(named.values()) == [867, 867, 157, 157, 628, 14, 7, 5, 16, 7, 217, 79, 192]
    switches = [name for name in named if "switch" in name and "40" not in name]
    assert sum(named[name] for name in switches) == 28


def test_a_total_is_computed_and_not_kept(tmp_path: Path, rates: Rates) -> None:
    """One dollar more for a server is as many dollars more as there are servers."""
    text = reading.SHIPPED[0].read_text()
    path = tmp_path / "dearer.toml"
    path.write_text(text.replace("28_731", "28_732"))
    assert bill(reading.plan(path), rates).equipment_usd == 33_577_760 + 1024


def test_the_fitted_share_has_the_range_that_the_files_tell(plans: tuple[Plan, Plan], rates: Rates) -> None:
    """Both yearly totals are met to their last digit between 0.018 and 0.0195, and not much beyond."""

    def rounded(share: float) -> list[float]:
        changed = [
            replace(plan, facility=replace(plan.facility, other_share_of_equipment=share)) for plan in plans
        ]
        return [round(bill(plan, rates).year_total_usd / 1e6, 1) for plan in changed]

    assert all(rounded(share) == [12.9, 10.8] for share in (0.018, 0.019, 0.0195))
    assert rounded(0.0175) != [12.9, 10.8]
    assert rounded(0.0200) != [12.9, 10.8]


def test_power_is_that_of_the_equipment_and_its_cooling(bills: tuple[Bill, Bill]) -> None:
    """1,024 servers of 750 W and 160 switches of 398 W, a year at 0.10 $ the kWh, and as much for cooling."""
    homogeneous = bills[0]
    assert homogeneous.watts_max == 1024 * 750 + 160 * 398
    year = homogeneous.year_usd()
    assert list(year) == list(PARTS)
    assert year["power"] == pytest.approx(831.68 * 8760 * 0.10)
    assert year["cooling"] == year["power"]


def test_the_text_contradicts_itself_where_we_say(bills: tuple[Bill, Bill]) -> None:
    """The caption of Table 3, and the power of section 7.2, which is that of 384 switches."""
    told = {statement.where + ": " + statement.what: statement for statement in statements(*bills)}
    caption = told["Table 3, caption: equipment, M$"]
    assert caption.contradicts
    assert (caption.says, round(caption.gives, 1)) == (30.9, 33.6)
    power = told["7.2, fourth paragraph: maximum power without cooling, kW"]
    assert power.contradicts
    assert (power.says, round(power.gives)) == (921, 832)
    assert "384 switches, Table 3 has 160" in power.why
    a_year = told["7.2, fourth paragraph: power and cooling at maximum load, M$ a year"]
    assert a_year.contradicts
    assert round(a_year.gives, 2) == 1.46
    splitters = told["Table 4 and Figure 16: optical splitters"]
    assert (splitters.says, splitters.gives) == (7, 112)
    assert "$122,325 more" in splitters.why


def test_no_sum_of_rows_is_what_the_caption_says(bills: tuple[Bill, Bill]) -> None:
    """So the caption is no total of something less, such as servers alone."""
    rows = [line.usd for line in bills[0].lines]
    sums = [sum(chosen) for size in range(6) for chosen in itertools.combinations(rows, size)]
    assert min(abs(total - CAPTION_USD) for total in sums) > 50_000


def test_a_load_that_nodes_just_carry_takes_no_more_nodes(plans: tuple[Plan, Plan], rates: Rates) -> None:
    """Fractions that are whole but for their last bit; and the least is one node."""
    plan, per_node = plans[1], 0.1
    for nodes in (1, 3, 7, 289):
        one = replace(plan, records_per_second=nodes * per_node)
        even = replace(rates, per_node=dict.fromkeys(rates.per_node, per_node))
        assert bill(one, even).nodes["producer"] == nodes
    idle = replace(plan, records_per_second=1e-6)
    assert bill(idle, rates).nodes == {"producer": 1, "consumer": 1, "broker": 3}


def test_a_faster_bus_takes_fewer_brokers_and_nothing_else(plans: tuple[Plan, Plan], rates: Rates) -> None:
    """Twice the rate, half the brokers, with their adapters, drives, cables and power; compute stays."""
    plan = plans[1]
    now, faster = bill(plan, rates), bill(plan, with_faster(rates, "broker", 2))
    assert faster.nodes == {"producer": 289, "consumer": 578, "broker": 80}
    assert faster.quantity("drive") == 4 * 80
    assert faster.quantity("compute server") == now.quantity("compute server")
    assert faster.quantity("edge switch of brokers") == 3
    none = price(plan, rates, {**now.nodes, "broker": 0})
    assert none.year_total_usd < faster.year_total_usd < now.year_total_usd


def test_what_matters_most_comes_first(plans: tuple[Plan, Plan], rates: Rates) -> None:
    """Years and load before prices; a price changes the year in proportion, both ways."""
    found = swings(plans[1], rates)
    assert [swing.size_usd for swing in found] == sorted((swing.size_usd for swing in found), reverse=True)
    by_name = {swing.input: swing for swing in found}
    assert [swing.input for swing in found[:3]] == [
        "years of use",
        "records a second",
        "price of compute server",
    ]
    server = by_name["price of compute server"]
    # A fifth of the price, in three years, with the share for racks and the rest.
    expected = CHANGE * 867 * 28_731 / 3 * 1.019
    assert server.more_usd == pytest.approx(expected)
    assert server.less_usd == pytest.approx(-expected)
    assert by_name["rate of a consumer node"].less_usd > 0 > by_name["rate of a consumer node"].more_usd


def test_without_a_measured_rate_it_says_so(tmp_path: Path) -> None:
    """And with one it says what it is, for the roles that the file names."""
    without = run(Subject())
    assert any("no measured rate of Mez's bus was given (--rates FILE)" in note for note in without.notes)
    assert without.parameters["rates_measured"] is False
    path = tmp_path / "mez.toml"
    path.write_text(
        'name = "Mez, on disk"\nsource = "measured here"\nmeasured = true\n'
        '[[rate]]\nrole = "broker"\nnodes = 2\nrecords_per_second = 40000\n'
    )
    given = run(Subject(rates=path))
    assert not any("no measured rate" in note for note in given.notes)
    nodes = {
        row["role"]: row["nodes"]
        for row in given.rows
        if row["kind"] == "nodes" and row["plan"] == "targeted"
    }
    assert nodes == {"producer": 289, "consumer": 578, "broker": 79}
    assert any("no rate of: producer, consumer; the paper's rates are used" in note for note in given.notes)
    # What is compared with the paper keeps the paper's rates.
    assert given.metrics["tco_error_max"] == without.metrics["tco_error_max"]
    assert given.metrics["equipment_usd_off_max"].median == 0
    assert given.metrics["year_usd_targeted"].median < without.metrics["year_usd_targeted"].median


OWN = """\
name = "ours"
about = "a small one"
source = "an offer"
records_per_second = 100

[[role]]
name = "worker"

[[item]]
name = "server"
model = "any"
kind = "server"
price_usd = 3000
watts_max = 100
of = ["worker"]

[[item]]
name = "switch"
model = "any"
kind = "network"
price_usd = 300
watts_max = 0
count = 1

[facility]
years = 3
usd_per_kwh = 0.2
hours_per_year = 8760
load_share = 0.5
cooling_watts_per_watt = 0.5
other_share_of_equipment = 0
"""
OWN_RATES = """\
name = "ours"
source = "measured here"
measured = true

[[rate]]
role = "worker"
nodes = 1
records_per_second = 10
"""


def test_a_data_centre_of_ones_own_is_priced(tmp_path: Path) -> None:
    """Other roles, no brokers, nothing published: no targets, and a sum that can be done by hand."""
    plan, rates = tmp_path / "ours.toml", tmp_path / "rates.toml"
    plan.write_text(OWN)
    rates.write_text(OWN_RATES)
    outcome = run(Subject(plans=(plan,), rates=rates))
    assert outcome.targets == []
    assert "tco_error_max" not in outcome.metrics
    assert outcome.metrics["nodes_ours"].median == 10
    assert outcome.metrics["equipment_usd_ours"].median == 30_300
    # A thousand watts, half of it on average, and half of that for cooling.
    assert outcome.metrics["year_usd_ours"].median == pytest.approx(10_100 + 0.5 * 1.5 * 8760 * 0.2)


WRONG = (
    ("price_usd = 3000", 'price_usd = "3 k$"', 'item[1].price_usd = "3 k$": is not a number|price_usd = 399'),
    ("price_usd = 3000", "price_usd = -1", "item[1].price_usd = -1: is out of range (at least 0)"),
    ("price_usd = 3000", "price = 3000", 'item[1].price_usd: is missing (there is "price")|price_usd = 399'),
    ("watts_max = 100", "watts_max = 100\nwats = 1", 'item[1].wats = 1: is no field|mean "watts_max"?'),
    ('kind = "server"', 'kind = "sever"', 'item[1].kind = "sever": is not known|mean "server"?'),
    ('of = ["worker"]', 'of = ["workers"]', 'item[1].of = "workers": is no role|mean "worker"?'),
    ('of = ["worker"]', 'of = ["switch"]', 'item[1].of = "switch"|no role or earlier item; one of: worker'),
    ('of = ["worker"]', 'of = ["worker", "worker"]', "item[1].of|has a name twice; give each name once"),
    ('of = ["worker"]', 'of = "worker"', 'item[1].of = "worker": is not a list|of = ["worker"]'),
    ('of = ["worker"]', 'of = ["worker"]\nper = 1.5', "item[1].per = 1.5: is not whole; write per = 2"),
    ("count = 1", 'count = 1\nof = ["worker"]', "item[2].of: cannot stand beside count; give either count"),
    ('name = "switch"', 'name = "server"', 'item[2].name = "server": is there twice'),
    ("years = 3", "years = 0", "facility.years = 0: is zero|above zero, such as years = 3"),
    ("years = 3", "years = true", "facility.years = true: is not a number"),
    ("years = 3", "years = inf", "facility.years = inf: is not finite"),
    ("load_share = 0.5", "load_share = 50", "facility.load_share = 50|from 0 to 1|load_share = 0.7"),
    ("[facility]", "[facilities]", "facility: is missing|begin it with a line [facility]"),
    ("[[role]]", "[role]", "role = |is not a list of tables; begin each with a line [[role]]"),
    ('name = "worker"', 'name = ""', 'role[1].name = "": is empty'),
    ("records_per_second = 100", "records_per_second = 100 kB", "is not TOML|line 4"),
)
"""What stands in the file, what somebody writes instead, and what has to be said of it."""


@pytest.mark.parametrize(("right", "wrong", "told"), WRONG)
def test_what_is_wrong_in_a_file_is_told_with_field_value_and_remedy(
    tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    """A stranger mends it without reading our code."""
    path = tmp_path / "ours.toml"
    assert right in OWN
    path.write_text(OWN.replace(right, wrong, 1))
    with pytest.raises(PlanError) as refused:
        reading.plan(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert all(part in message for part in told.split("|")), message


def test_rates_that_mez_did_not_measure_are_called_so(tmp_path: Path) -> None:
    """A guess stays a guess; a role written wrongly is refused, because it would change nothing."""
    plan, rates = tmp_path / "ours.toml", tmp_path / "rates.toml"
    plan.write_text(OWN)
    rates.write_text(OWN_RATES.replace("measured = true", "measured = false"))
    guessed = run(Subject(plans=(plan,), rates=rates))
    assert any(
        "measured = false: nothing here is a rate that Mez's bus reached" in note for note in guessed.notes
    )
    rates.write_text(OWN_RATES.replace('"worker"', '"brokr"'))
    with pytest.raises(PlanError, match=r'rate\[1\].role = "brokr": is no role.*mean "broker"'):
        run(Subject(rates=rates))


def test_a_role_without_a_rate_and_a_rate_given_twice_are_refused(tmp_path: Path) -> None:
    """Both files are named by what has to be changed in them."""
    plan, rates = tmp_path / "ours.toml", tmp_path / "rates.toml"
    plan.write_text(OWN)
    with pytest.raises(PlanError, match=r'ours.toml: role\[1\].name = "worker": has no rate.*--rates'):
        run(Subject(plans=(plan,)))
    rates.write_text(OWN_RATES + OWN_RATES[OWN_RATES.index("[[rate]]") :])
    with pytest.raises(PlanError, match=r'rates.toml: rate\[2\].role = "worker": is there twice'):
        reading.rates(rates)
    with pytest.raises(PlanError, match=r"nowhere.toml: cannot be read .*copy one of"):
        reading.plan(tmp_path / "nowhere.toml")


def test_the_command_teaches_and_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own help; options of others are not taken; a wrong file ends it with status 1 and a sentence."""
    # What ends a process from outside is pytest's matter here.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        cli.main(["cost", "--help"])
    taught = capsys.readouterr().out
    for part in ("--plan", "--rates", "plans/targeted.toml", "docs/cost.md", "exit code"):
        assert part in taught
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "docs/cost.md" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["log", "--plan", "x.toml"])
    assert "--plan is for cost" in capsys.readouterr().err
    assert cli.main(["cost", "--plan", "x.toml"]) == 1
    assert capsys.readouterr().err.startswith("mez bench cost: x.toml: cannot be read")


def test_the_command_writes_a_table_and_a_picture(tmp_path: Path) -> None:
    """All digits of the totals are in the file, and every target is met."""
    path = tmp_path / "cost.json"
    ran = subprocess.run(
        [*BENCH, "cost", "--quick", "--check", "--json", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(path.read_text())
    assert result["metrics"]["tco_error_max"] <= 0.01
    years = {row["plan"]: row for row in result["rows"] if row["kind"] == "year"}
    assert years["homogeneous"]["equipment_usd"] == 33_577_760
    assert years["targeted"]["equipment_usd"] == 27_878_431
    assert "cost.svg" in ran.stdout
    assert "no measured rate" in ran.stdout
