"""Coverage is summed by room, and a floor that is not held is said."""

import pytest

from support.room_coverage import complaints, percents, raised, room_of


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("libvgpu/region.py", "libvgpu"),
        ("deviceplugin/core/admission.py", "deviceplugin/core"),
        ("deviceplugin/scheduler/search/fit.py", "deviceplugin/scheduler"),
    ],
)
def test_a_room_is_a_folder_of_a_package_with_all_below_it(path: str, room: str) -> None:
    assert room_of(path) == room


def test_a_room_has_the_statements_of_all_its_files() -> None:
    files = [("a/b/x.py", 10, 10), ("a/b/c/y.py", 30, 20), ("a/z.py", 4, 1), ("a/d/e.py", 0, 0)]

    assert percents(files) == {"a": 25.0, "a/b": 75.0}


def test_a_room_below_its_floor_one_without_and_one_that_is_gone_are_named() -> None:
    found = {"a": 74.9, "b": 80.0, "new": 10.0}

    assert complaints(found, {"a": 75, "b": 80, "old": 5}) == [
        "a: 74.9 % covered, its floor is 75 %: add the tests that it lost",
        "new has no floor: make coverage RAISE=1",
        "old is gone: remove its floor",
    ]


def test_floors_rise_and_never_fall() -> None:
    found = {"a": 75.9, "b": 80.0, "new": 10.2}

    floors = raised(found, {"a": 75, "b": 70, "old": 5})

    assert floors == {"a": 75, "b": 79, "new": 9}
    assert complaints(found, floors) == []
