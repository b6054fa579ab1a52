"""The rows of many nodes: each has its node, and who did not answer is said."""

from collections.abc import Sequence
from typing import Any

from deviceplugin.pages.slices import NodeGpu

from ..observe import SeenGpu
from ..render import Column, Row, say
from ..run.requests import GpuCandidate
from .nodes import PROGRAM, NodeAnswer


def _host(row: Row) -> str:
    """Returns a node's name without its domain, which nodes of a cluster share."""
    node = str(row["node"])
    return node if node.replace(".", "").isdecimal() else node.partition(".")[0]


NODE_COLUMN = Column("NODE", lambda row: str(row["node"]), narrow=_host, is_name=True)


def of_node(node: str, rows: Sequence[Row]) -> list[Row]:
    """Returns rows that say which node they are of."""
    return [{**row, "node": node} for row in rows]


def seen(gpus: Sequence[NodeGpu]) -> list[SeenGpu]:
    """Returns GPUs of a page as those that were seen on the node."""
    return [
        SeenGpu(
            GpuCandidate(
                gpu.index,
                gpu.uuid,
                gpu.product,
                gpu.memory_bytes,
                driver=gpu.driver,
                mig_number=gpu.mig_number,
                is_cut=gpu.is_cut,
            ),
            gpu.source,
        )
        for gpu in gpus
    ]


def say_problems(answers: Sequence[NodeAnswer[Any]]) -> int:
    """Says on stderr which nodes did not answer, and why; returns the exit status."""
    silent = [answer for answer in answers if answer.problem]
    for answer in silent:
        say(f"{PROGRAM}: node {answer.node}: {answer.problem}")
    return int(bool(silent))
