"""One step takes the path through the client that the docstring draws."""

import re
import sys
from pathlib import Path
from types import FrameType

import shared.client
from tests.shared.client.fake_server import FakeServer, drive

FUNCTIONS = 23  # of shared/ that one step enters on a healthy server, each counted once


def functions_of_one_step() -> list[str]:
    """Return the qualified names of the functions of shared/ that one step enters, in order."""
    entered: dict[str, None] = {}
    root = str(Path(shared.client.__file__).parents[1])

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            entered[frame.f_code.co_qualname] = None

    async def main() -> None:
        async with FakeServer().client() as client:
            await client.reset(episode_id="e")
            await client.step("e", "QUERY: 0")
            sys.setprofile(note)
            try:
                await client.step("e", "QUERY: 1")
            finally:
                sys.setprofile(None)

    drive(main())
    return [name for name in entered if not name.endswith(("comp>", "genexpr>"))]


def test_a_step_takes_the_path_that_the_docstring_draws() -> None:
    drawn = re.findall(r"^    (\w+(?:\.\w+)?)  ", shared.client.__doc__ or "", re.MULTILINE)
    names = [name.replace("SQLEnvClient", "AsyncClient") for name in drawn]
    assert len(names) == 6
    entered = functions_of_one_step()
    places = [
        next(place for place, name in enumerate(entered) if name.startswith(drawn_name))
        for drawn_name in names
    ]
    assert places == sorted(places), entered


def test_a_step_enters_few_functions() -> None:
    entered = functions_of_one_step()
    assert len(entered) <= FUNCTIONS, entered
