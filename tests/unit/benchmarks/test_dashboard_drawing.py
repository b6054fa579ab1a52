"""Pictures of dashboards: units, legends, series without numbers, and that a file comes of it."""

import pytest

from benchmarks.dashboards.drawing import lines_of, scale
from benchmarks.dashboards.queries import choose, legend


@pytest.mark.parametrize(
    ("unit", "most", "shown"),
    [
        ("bytes", 0.0, (1.0, "B")),
        ("bytes", 80.0 * 2**30, (2.0**30, "GiB")),
        ("bytes", 5.0 * 2**60, (2.0**40, "TiB")),
        ("percentunit", 0.6, (0.01, "%")),
        ("s", 0.0004, (1e-6, "µs")),
        ("s", 0.4, (1e-3, "ms")),
        ("s", 40.0, (1.0, "s")),
        ("ops", 2500.0, (1000.0, "k/s")),
        ("short", 3.0, (1.0, "")),
    ],
)
def test_values_are_shown_in_a_size_that_fits(
    unit: str, most: float, shown: tuple[float, str]
) -> None:
    size, name = scale(unit, most)

    assert size == pytest.approx(shown[0])
    assert name == shown[1]


def test_a_legend_is_made_of_labels() -> None:
    labels = {"__name__": "up", "node": "n1", "index": "3"}

    assert legend("{{node}} GPU {{ index }} used", labels) == "n1 GPU 3 used"
    assert legend("{{node}} {{missing}}", labels) == "n1"
    assert legend("__auto", labels) == 'up{index="3", node="n1"}'


def test_what_is_chosen_on_top_goes_into_the_query() -> None:
    dashboard = {"templating": {"list": [{"name": "pod"}, {"name": "gpu"}]}}
    query = 'sum(x{pod=~"$pod",gpu=~"$gpu"})'

    assert choose(query, dashboard) == 'sum(x{pod=~".+",gpu=~".+"})'
    assert choose(query, dashboard, {"pod": "a|b"}) == 'sum(x{pod=~"a|b",gpu=~".+"})'


def test_points_that_are_no_numbers_are_left_out() -> None:
    answers = [
        {"values": [[101, "1"], [102, "NaN"], [103, "3"]]},
        {"values": [[101, "NaN"], [102, "+Inf"]]},
        {"values": [[101, "0"]]},
    ]

    found = lines_of(answers, ["b", "never", "a"], 100.0)

    assert [(line.legend, list(line.seconds), list(line.values)) for line in found] == [
        ("a", [1.0], [0.0]),
        ("b", [1.0, 3.0], [1.0, 3.0]),
    ]
