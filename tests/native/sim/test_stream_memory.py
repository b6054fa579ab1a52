"""Memory operations and attributes of streams, and events of whole contexts."""

import pytest

from libvgpu.sim import Machine
from support.sim.programs import run, said_in

NOT_READY = 600
BATCH_MEMORY_OPERATION = 12

PRELUDE = """
context = open_context()
stream = check(cuda.cuStreamCreate(1))  # the default stream must not wait for it
word = int(check(cuda.cuMemAlloc(4096)))
check(cuda.cuMemsetD8(word, 0, 4096))
def set_word(value, at=0, bytes=4):
    check(cuda.cuMemcpyHtoD(word + at, value.to_bytes(bytes, "little"), bytes))
def read_word(at=0, bytes=4):
    back = bytearray(bytes)
    check(cuda.cuMemcpyDtoH(back, word + at, bytes))
    return int.from_bytes(back, "little")
def query(): return int(cuda.cuStreamQuery(stream)[0])
def stays_busy(seconds=0.03):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if query() != 600:
            return False
    return True
GEQ, EQ, AND, NOR = 0, 1, 2, 3
"""


@pytest.mark.parametrize(
    ("call", "condition", "value", "before", "after"),
    [
        ("cuStreamWaitValue32", "GEQ", 5, 4, 6),
        ("cuStreamWaitValue32", "GEQ", 5, 0x80000000 + 5, 5),
        ("cuStreamWaitValue32", "EQ", 5, 6, 5),
        ("cuStreamWaitValue32", "AND", 6, 9, 4),
        ("cuStreamWaitValue32", "NOR", 0xFFFFFFF0, 0xF, 7),
        ("cuStreamWaitValue64", "GEQ", 1 << 40, (1 << 40) - 1, 1 << 40),
        ("cuStreamWaitValue64", "EQ", 1 << 40, 1, 1 << 40),
        ("cuStreamWaitValue64", "AND", 1 << 40, 1, 3 << 40),
        ("cuStreamWaitValue64", "NOR", (1 << 64) - 2, 1, 0),
    ],
)
def test_a_stream_waits_until_a_word_is_as_asked(
    machine: Machine, call: str, condition: str, value: int, before: int, after: int
) -> None:
    code = f"""
bytes = {8 if call.endswith("64") else 4}
set_word({before}, bytes=bytes)
check(cuda.{call}(stream, word, {value}, {condition}))
waits = stays_busy()
set_word({after}, bytes=bytes)
check(cuda.cuStreamSynchronize(stream))
say(waits=waits, then=query())
"""
    assert said_in(machine, PRELUDE + code) == {"waits": True, "then": 0}


def test_writes_come_in_order_behind_a_wait(machine: Machine) -> None:
    code = """
check(cuda.cuStreamWaitValue32(stream, word, 1, EQ))
check(cuda.cuStreamWriteValue32(stream, word + 4, 7, 0))
check(cuda.cuStreamWriteValue64(stream, word + 8, 1 << 40, 1))
early = read_word(4)
set_word(1)
check(cuda.cuStreamSynchronize(stream))
say(early=early, narrow=read_word(4), wide=read_word(8, 8))
"""
    assert said_in(machine, PRELUDE + code) == {"early": 0, "narrow": 7, "wide": 1 << 40}


def test_a_batch_runs_in_its_order(machine: Machine) -> None:
    code = """
T = cuda.CUstreamBatchMemOpType
def wait(address, value):
    one = cuda.CUstreamBatchMemOpParams()
    one.waitValue.operation = T.CU_STREAM_MEM_OP_WAIT_VALUE_32
    one.waitValue.address, one.waitValue.flags = address, EQ
    one.waitValue.value = value
    return one
def write(address, value, type=T.CU_STREAM_MEM_OP_WRITE_VALUE_32):
    one = cuda.CUstreamBatchMemOpParams()
    one.writeValue.operation, one.writeValue.address = type, address
    one.writeValue.value = value
    return one
check(cuda.cuStreamBatchMemOp(stream, 3, [write(word, 1), wait(word, 2), write(word + 4, 3)], 0))
while read_word() != 1:
    time.sleep(0.001)
early, waits = read_word(4), stays_busy()
set_word(2)
check(cuda.cuStreamSynchronize(stream))
same(int(cuda.cuStreamBatchMemOp(stream, 0, [], 0)[0]), INVALID_VALUE)
flush = write(word, 1, T.CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
same(early, 0)
same(waits, True)
same(read_word(4), 3)
same(int(cuda.cuStreamBatchMemOp(stream, 1, [write(word, 1)], 1)[0]), INVALID_VALUE)
same(int(cuda.cuStreamBatchMemOp(stream, 1, [flush], 0)[0]), NOT_SUPPORTED)
"""
    run(machine, PRELUDE + code)


def test_captured_operations_become_a_node(machine: Machine) -> None:
    code = """
check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
check(cuda.cuStreamWriteValue32(stream, word, 5, 0))
graph = check(cuda.cuStreamEndCapture(stream))
nodes, _ = check(cuda.cuGraphGetNodes(graph, 1))
before = read_word()
check(cuda.cuGraphLaunch(check(cuda.cuGraphInstantiate(graph, 0)), stream))
check(cuda.cuStreamSynchronize(stream))
say(kind=int(check(cuda.cuGraphNodeGetType(nodes[0]))), before=before, after=read_word())
"""
    assert said_in(machine, PRELUDE + code) == {
        "kind": BATCH_MEMORY_OPERATION,
        "before": 0,
        "after": 5,
    }


def test_a_program_may_end_while_a_stream_waits(machine: Machine) -> None:
    code = "check(cuda.cuStreamWaitValue32(stream, word, 1, EQ)); say(w=query())"
    assert said_in(machine, PRELUDE + code) == {"w": NOT_READY}


def test_words_that_are_none_are_refused(machine: Machine) -> None:
    code = """
managed = int(check(cuda.cuMemAllocManaged(4096, 1)))
def wait(address, flags=EQ): return int(cuda.cuStreamWaitValue32(stream, address, 1, flags)[0])
same(wait(4096), INVALID_VALUE)
same(wait(word + 2), INVALID_VALUE)
same(wait(managed), INVALID_VALUE)
same(wait(word, 8), INVALID_VALUE)
same(wait(word, 1 << 30), NOT_SUPPORTED)
same(int(cuda.cuStreamWriteValue64(stream, word + 4, 1, 0)[0]), INVALID_VALUE)
"""
    run(machine, PRELUDE + code)


def test_attributes_are_kept_and_copied(machine: Machine) -> None:
    code = """
A = cuda.CUstreamAttrID
policy, priority = (A.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, A.CU_LAUNCH_ATTRIBUTE_PRIORITY)
window = A.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
def get(which, attribute): return check(cuda.cuStreamGetAttribute(which, attribute))
def put(attribute, value): return int(cuda.cuStreamSetAttribute(stream, attribute, value)[0])
P = cuda.CUsynchronizationPolicy
same(int(get(stream, policy).syncPolicy), 1)
value = cuda.CUstreamAttrValue(); value.syncPolicy = P.CU_SYNC_POLICY_YIELD
urgent = cuda.CUstreamAttrValue(); urgent.priority = -2
wild = cuda.CUstreamAttrValue(); wild.priority = -200
held = cuda.CUstreamAttrValue()
held.accessPolicyWindow.num_bytes, held.accessPolicyWindow.hitRatio = 4096, 0.5
over = cuda.CUstreamAttrValue(); over.accessPolicyWindow.hitRatio = 1.5
codes = [put(policy, value), put(priority, urgent), put(priority, wild), put(window, held),
         put(window, over)]
other = check(cuda.cuStreamCreate(0))
check(cuda.cuStreamCopyAttributes(other, stream))
same(codes, [0, 0, INVALID_VALUE, 0, INVALID_VALUE])
same(int(get(other, policy).syncPolicy), 3)
same(check(cuda.cuStreamGetPriority(other)), -2)
same(get(other, window).accessPolicyWindow.num_bytes, 4096)
same([get(stream, A.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP).memSyncDomainMap.remote], [1])
same(int(cuda.cuStreamGetAttribute(stream, A.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)[0]), INVALID_VALUE)
"""
    run(machine, PRELUDE + code)


def test_an_event_records_and_holds_up_a_whole_context(machine: Machine) -> None:
    code = """
spinner = Spinner(200_000_000)
event = check(cuda.cuEventCreate(0))
spinner.launch()
check(cuda.cuCtxRecordEvent(context, event))
same(int(cuda.cuEventQuery(event)[0]), NOT_READY)
check(cuda.cuCtxWaitEvent(context, event))
spinner.wait()
check(cuda.cuEventSynchronize(event))
other = check(cuda.cuCtxCreate(None, 0, 0))
same(int(cuda.cuEventQuery(event)[0]), 0)
same(int(cuda.cuCtxRecordEvent(other, event)[0]), INVALID_HANDLE)
same(int(cuda.cuCtxWaitEvent(other, event)[0]), 0)
same(int(cuda.cuCtxRecordEvent(other, 0)[0]), INVALID_HANDLE)
"""
    run(machine, PRELUDE + code)


def test_an_event_of_a_context_is_one_of_the_streams_that_block_nobody_too(
    machine: Machine,
) -> None:
    code = """
spinner, short = Spinner(100_000_000), Spinner(1_000_000)
spinner.stream = stream
streams = [check(cuda.cuStreamCreate(1)) for _ in range(3)]
begin, all_done = check(cuda.cuEventCreate(0)), check(cuda.cuEventCreate(0))
check(cuda.cuEventRecord(begin, stream))
spinner.launch()
check(cuda.cuCtxRecordEvent(context, all_done))
check(cuda.cuCtxWaitEvent(context, all_done))
streams.append(check(cuda.cuStreamCreate(1)))  # made afterwards
ends = []
for short.stream in streams:
    short.launch()
    ends.append(check(cuda.cuEventCreate(0)))
    check(cuda.cuEventRecord(ends[-1], short.stream))
check(cuda.cuCtxSynchronize())
since = [check(cuda.cuEventElapsedTime(begin, end)) for end in (all_done, *ends)]
say(early=[milliseconds for milliseconds in since if milliseconds < 100])
"""
    assert said_in(machine, PRELUDE + code) == {"early": []}


def test_a_context_waits_in_all_its_streams_for_an_event_of_another_device(
    two_gpus: Machine,
) -> None:
    code = """
spinner = Spinner(100_000_000)
event = check(cuda.cuEventCreate(0))
spinner.launch()
check(cuda.cuEventRecord(event, spinner.stream))
other = open_context(1)
short = Spinner(1_000_000)
short.stream = check(cuda.cuStreamCreate(1))
check(cuda.cuCtxWaitEvent(other, event))
short.launch()
during = int(cuda.cuStreamQuery(short.stream)[0])
check(cuda.cuStreamSynchronize(short.stream))
say(during=during, event=int(cuda.cuEventQuery(event)[0]))
"""
    assert said_in(two_gpus, PRELUDE + code) == {"during": NOT_READY, "event": 0}
