"""Names of units."""

from deviceplugin.model.units import in_order, unit_number


def test_units_are_ordered_by_number_and_not_as_words() -> None:
    units = [f"GPU-1::m{number}" for number in (100, 9, 0, 10, 2, 99)]

    assert [unit_number(unit) for unit in in_order(units)] == [0, 2, 9, 10, 99, 100]
