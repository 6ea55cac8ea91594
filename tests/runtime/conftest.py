import pytest
from support import HERE, Machine


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Machine:
    """Return the machine that a test's libraries are for: this one, unless the test is parametrised
    (`on_each_machine`)."""
    return getattr(request, "param", HERE)
