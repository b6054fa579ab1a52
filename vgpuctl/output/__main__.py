"""``python -m vgpuctl.output DIRECTORY``: writes the schemas of this version there.

Refuses (exit status 1, nothing is written) what would break programs under the same version.
"""

import json
import sys
from pathlib import Path

from libvgpu.json_rows import to_rows

from .schemas import (
    NODE_OUTPUTS,
    OUTPUTS,
    PAGES,
    breaks,
    demands,
    file_name,
    page_file_name,
    schema_of,
    schema_of_nodes,
    schema_of_page,
)


def main(directory: Path) -> int:
    """Writes the files; returns the exit status."""
    made = {directory / file_name(verb): schema_of(verb) for verb in OUTPUTS}
    made |= {directory / file_name(each): schema_of_nodes(each) for each in NODE_OUTPUTS}
    pages = {directory / page_file_name(page): schema_of_page(page) for page in PAGES}
    broken = [
        f"{path}: {what}"
        for path, schema in (made | pages).items()
        if path.exists()
        for old in (json.loads(path.read_text()),)
        for what in (*breaks(old, schema), *(demands(old, schema) if path in pages else ()))
    ]
    for line in broken:
        print(line, file=sys.stderr)
    if broken:
        print(
            "raise OUTPUT_VERSION in vgpuctl/render.py and rows.Version; of a page VERSION in "
            "deviceplugin/pages/slices.py",
            file=sys.stderr,
        )
        return 1
    made |= pages
    for path, schema in made.items():
        path.write_text(to_rows(schema))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
