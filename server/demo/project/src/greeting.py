"""What is said to one person."""


def greeting(name: str) -> str:
    # TODO: other languages
    return f"Hello, {name}!"
