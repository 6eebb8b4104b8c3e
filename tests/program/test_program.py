from __future__ import annotations

import copy
import json
import pickle
from typing import Any, NamedTuple

import pytest

from ludus import errors
from ludus.program import Edge, Handle, Program, Resources, RestartPolicy
from ludus.program.program import map_handles
from ludus.workers.register import register
from ludus.workers.worker import Worker


class Policy:
    def __init__(self, size: int = 1) -> None:
        self.size = size

    @register()
    def act(self, x: int) -> int:
        return x * self.size


class Player:
    def __init__(self, *policies: Any, lr: float = 0.1, **others: Any) -> None: ...

    def run(self) -> None: ...


class Trainer(Worker):
    def __init__(self, server: Any, rate: float) -> None: ...


class Pair(NamedTuple):
    left: Any
    right: Any


def test_replicas_are_named_after_their_node() -> None:
    program = Program("demo")
    program.add("policy", Policy, replicas=3)
    assert program.node("policy").worker_names == ("policy/0", "policy/1", "policy/2")


def test_a_handle_given_to_a_constructor_is_an_edge() -> None:
    program = Program("demo")
    policy = program.add("policy", Policy)
    program.add("player", Player, policy)
    assert program.edges == (Edge("player", "policy"),)


def test_handles_are_found_inside_dicts_lists_and_tuples() -> None:
    program = Program("demo")
    a, b, c, d = (program.add(name, Policy) for name in "abcd")
    program.add("player", Player, [a, {"x": (b, 1)}], Pair(c, 2), other={"y": [d, d]})
    assert [edge.service for edge in program.edges] == ["a", "b", "c", "d"]


def test_mapping_handles_keeps_the_shape_of_everything_else() -> None:
    handle = Handle("demo", "policy")
    value = {"a": [handle, 1], "b": Pair(handle, "text"), "c": (None, 2.0)}
    assert map_handles(value, lambda handle: handle.node) == {
        "a": ["policy", 1],
        "b": Pair("policy", "text"),
        "c": (None, 2.0),
    }


def test_two_nodes_can_hold_each_other() -> None:
    program = Program("demo")
    program.add("player", Player, program.handle("judge"))
    program.add("judge", Player, program.handle("player"))
    program.validate()
    assert set(program.edges) == {Edge("player", "judge"), Edge("judge", "player")}


def test_a_handle_that_leads_nowhere_is_answered_with_the_nearest_node() -> None:
    program = Program("demo")
    program.add("policy", Policy)
    program.add("player", Player, program.handle("polycy"))
    with pytest.raises(errors.ProgramError, match=r"'polycy'.*never added.*Did you mean 'policy'"):
        program.validate()


def test_an_unknown_node_is_answered_with_the_nearest() -> None:
    program = Program("demo")
    program.add("policy", Policy)
    with pytest.raises(errors.ProgramError, match="Did you mean 'policy'"):
        program.node("plicy")


def test_an_empty_program_does_not_validate() -> None:
    with pytest.raises(errors.ProgramError, match="no nodes"):
        Program("demo").validate()


def test_a_name_can_be_used_once() -> None:
    program = Program("demo")
    program.add("policy", Policy)
    with pytest.raises(errors.ProgramError, match="already has a node 'policy'"):
        program.add("policy", Policy)


@pytest.mark.parametrize("name", ["", "a/b", "0a", "a b", "-a", "é", 3])
def test_names_that_could_not_be_files_are_refused(name: Any) -> None:
    with pytest.raises(errors.ProgramError, match="cannot name a"):
        Program(name)
    with pytest.raises(errors.ProgramError, match="cannot name a"):
        Program("demo").add(name, Policy)


@pytest.mark.parametrize("replicas", [0, -1, 1.5, True, "2"])
def test_replicas_is_a_whole_number(replicas: Any) -> None:
    with pytest.raises(errors.ProgramError, match="replicas="):
        Program("demo").add("policy", Policy, replicas=replicas)


@pytest.mark.parametrize("thing", [Policy(), len, "Policy"])
def test_a_node_is_made_of_a_class(thing: Any) -> None:
    with pytest.raises(errors.ProgramError, match="where a class belongs"):
        Program("demo").add("policy", thing)


def test_a_class_with_nothing_to_do_is_refused() -> None:
    class Idle:
        def helper(self) -> None: ...

    with pytest.raises(errors.ProgramError, match="Idle has nothing to do"):
        Program("demo").add("idle", Idle)


def test_a_missing_argument_is_reported_when_the_node_is_added() -> None:
    with pytest.raises(errors.ProgramError, match="missing a required argument: 'rate'"):
        Program("demo").add("trainer", Trainer)
    Program("demo").add("trainer", Trainer, 0.1)


def test_a_misspelt_argument_is_answered_with_the_nearest() -> None:
    with pytest.raises(errors.ProgramError, match="Did you mean 'size'"):
        Program("demo").add("policy", Policy, sise=3)


def test_a_handle_of_another_program_is_refused() -> None:
    policy = Program("other").add("policy", Policy)
    with pytest.raises(errors.ProgramError, match="of another program, 'other'"):
        Program("demo").add("player", Player, policy)


def test_calling_a_handle_says_where_it_becomes_a_remote() -> None:
    handle = Program("demo").add("policy", Policy)
    with pytest.raises(AttributeError, match="becomes a Remote"):
        handle.act(1)


def test_a_handle_can_be_copied_and_pickled() -> None:
    handle = Program("demo").add("policy", Policy)
    assert copy.deepcopy(handle) == pickle.loads(pickle.dumps(handle)) == handle  # noqa: S301


def test_nodes_that_only_answer_calls_have_no_end_of_their_own() -> None:
    program = Program("demo")
    for name, cls, args in (("policy", Policy, ()), ("player", Player, ()), ("trainer", Trainer, (0.1,))):
        program.add(name, cls, *args)
    assert [node.has_end for node in program.nodes] == [False, True, True]


def test_backoff_doubles_up_to_its_limit() -> None:
    policy = RestartPolicy(backoff_s=0.5, max_backoff_s=3.0)
    assert [policy.delay_s(n) for n in (1, 2, 3, 4, 1000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_negative_amounts_are_refused() -> None:
    with pytest.raises(errors.ProgramError, match="negative"):
        Resources(gpus=-1)
    with pytest.raises(errors.ProgramError, match="negative"):
        RestartPolicy(max_restarts=-1)


def test_the_description_is_plain_json() -> None:
    program = Program("demo")
    policy = program.add("policy", Policy, 7, replicas=2, resources=Resources(gpus=1, custom={"tpu": 1}))
    program.add("player", Player, policy, lr=0.5)
    described = json.loads(json.dumps(program.describe()))
    assert described["edges"] == [["player", "policy"]]
    assert described["nodes"][0]["workers"] == ["policy/0", "policy/1"]
    assert described["nodes"][1]["args"] == ["Handle('policy')"]
