"""Reading the locks: what is no lock is refused with a sentence."""

from pathlib import Path

import pytest

from deploy.image.locks import machine_of, read_debian_lock, read_python_lock
from libvgpu.errors import ConfigError, UsageError

HASH = "a" * 64


def test_a_package_of_python_may_have_several_hashes(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    other = "b" * 64
    lock.write_text(
        f"# why\nclick==8.5.1 \\\n    --hash=sha256:{HASH} \\\n    --hash=sha256:{other}\n"
        f"rich==15.0 --hash=sha256:{HASH}\n"
    )

    click, rich = read_python_lock(lock)

    assert (click.name, click.version, click.sha256) == ("click", "8.5.1", (HASH, other))
    assert (rich.name, rich.sha256) == ("rich", (HASH,))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"click==8.5.1 --hash=sha256:{HASH}\nrich==15.0\n", "rich==15.0"),
        (f"rich>=15\nclick==8.5.1 --hash=sha256:{HASH}\n", "rich>=15"),
        (f"click==8.5.1 --hash=sha256:{HASH[:-1]}\n", "click==8.5.1"),
        ("# nothing\n", "nothing"),
    ],
    ids=["no hash", "no version", "half a hash", "empty"],
)
def test_what_pins_nothing_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    lock = tmp_path / "python.lock"
    lock.write_text(text)

    with pytest.raises(ConfigError, match=wrong):
        read_python_lock(lock)


def test_a_lock_of_debian_that_is_none_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "debian.lock.json"
    lock.write_text('{"suite": "bookworm", "packages": {}}')

    with pytest.raises(ConfigError, match=r"debian\.lock\.json is no lock .* `stamp`"):
        read_debian_lock(lock)


def test_the_time_of_a_lock_is_its_stamp(tmp_path: Path) -> None:
    lock = tmp_path / "debian.lock.json"
    lock.write_text('{"suite": "bookworm", "stamp": "20260102T030405Z", "packages": {}}')

    assert read_debian_lock(lock).epoch_s == 1767323045


def test_another_architecture_is_refused_with_those_that_there_are() -> None:
    assert machine_of("arm64") == "aarch64"
    with pytest.raises(UsageError, match="'riscv64', only for amd64 and arm64"):
        machine_of("riscv64")
