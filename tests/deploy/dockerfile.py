"""Reads a Dockerfile: its stages, and the instructions of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, its lines joined."""

    word: str
    rest: str


@dataclass(frozen=True, slots=True)
class Stage:
    """What stands between one FROM and the next."""

    image: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def every(self, word: str) -> list[str]:
        """Return what is said by all instructions of a kind, in order."""
        return [each.rest for each in self.instructions if each.word == word]

    def last(self, word: str) -> str:
        """Return what is said by the instruction of a kind that counts; "" if there is none."""
        return (self.every(word) or [""])[-1]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it sets."""
        return dict(re.findall(r"(\w+)=(\S+)", " ".join(self.every("ENV"))))


def stages_of(text: str) -> list[Stage]:
    """Return the stages, with the defaults of the arguments that stand before the first put into image names."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.word == "FROM":
            image, _, name = instruction.rest.partition(" AS ")
            image = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], image)
            stages.append(Stage(image, name))
        elif stages:
            stages[-1].instructions.append(instruction)
        else:
            name, _, value = instruction.rest.partition("=")
            arguments[name] = value
    return stages


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    split = [line.split(maxsplit=1) for line in joined.splitlines()]
    return [Instruction(word.upper(), rest) for word, rest in split]
