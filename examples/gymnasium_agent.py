"""Play an episode as a Gymnasium environment: python examples/gymnasium_agent.py [URL]

Needs a running server, and 'pip install gymnasium' here.
"""

import sys

from sqlenv import SQLEnvGym, one_line_errors


def play(url: str = "http://127.0.0.1:8000") -> None:
    env = SQLEnvGym(url, difficulty="easy", render_mode="ansi")
    text, info = env.reset(seed=7)
    print(text, f"({info['question_id']})", sep="\n")
    table = text.partition("Tables: ")[2].split("\n")[0].split(", ")[0]  # quoted where SQL needs it
    for action in (f"DESCRIBE: {table}", f"SELECT count(*) FROM {table}", "ANSWER: 42"):
        _, reward, terminated, truncated, info = env.step(action)
        print(f"> {action}", env.render(), f"reward: {reward:.2f}", sep="\n")
    print("terminated:", terminated, "truncated:", truncated, "outcome:", info["outcome"])
    env.close()


if __name__ == "__main__":
    with one_line_errors():
        play(*sys.argv[1:])
