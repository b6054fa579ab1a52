"""All that is wrong with a config, in one reading."""

from deviceplugin.config.problems import problems

BAD = """\
version: v1
sharng: {}
resourceDomain: x
sharing:
  fractional:
  - {family: vgu}
  - {devices: [0]}
  - {family: vgpu, devices: [1], placement: nowhere}
  - {family: mps, devices: [1]}
limits:
- {core: 0}
- {}
- {core: 20, compute: hm, match: {namspace: a, podLabels: {a.b/c: 3}}}
- {core: 101}
"""


def said(text: str) -> list[str]:
    return [each.message for each in problems(text, "c")]


def test_each_problem_is_told_once_with_its_line_and_its_number_in_the_list() -> None:
    found = said(BAD)
    begins = [
        "c line 2: unknown key 'sharng' in the file",
        "c line 3: resourceDomain 'x'",
        "c line 6: sharing.fractional[0].family is 'vgu'",
        "c line 7: sharing.fractional[1] lacks the key 'family'",
        "c line 8: sharing.fractional[2].placement is 'nowhere'",
        "c line 9: GPU 1 is already shared on line 8",
        "c line 11: limits[0].core 0 must be",
        "c line 12: limits[1] changes nothing",
        "c line 13: limits[2].compute is 'hm'",
        "c line 13: limits[2].match.podLabels",
        "c line 13: unknown key 'namspace' in limits[2].match",
        "c line 14: limits[3].core 101 must be",
    ]
    assert len(found) == len(begins)
    for begin in begins:
        assert [message for message in found if message.startswith(begin)], begin
    assert problems(BAD, "c")[0].hint == "did you mean 'sharing'?"


def test_what_is_no_mapping_has_one_problem() -> None:
    assert [len(said(text)) for text in ("a: [", "[]", "{}", "version: v2\n")] == [1, 1, 1, 1]
    assert said("version: v1\n") == []
