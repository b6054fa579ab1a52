"""Tells the judge what `limits` files say: a directory a line in, a JSON object a line out."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from libvgpu import region
from libvgpu.errors import VgpuError


def main() -> None:
    for line in sys.stdin:
        try:
            limits = region.read_limits(Path(line.rstrip("\n"))).limits
            answer = {
                "allocation": limits.allocation_id,
                "family": limits.family.name.lower(),
                "devices": [asdict(device) for device in limits.devices],
            }
        except (VgpuError, OSError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
