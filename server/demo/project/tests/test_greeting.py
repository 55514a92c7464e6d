from greeting import greeting


def test_a_greeting_names_the_person() -> None:
    assert greeting("Ada") == "Hello, Ada!"
