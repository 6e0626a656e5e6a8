"""The decisions alone, very many times."""

from tests.model.machine import Nodes
from tests.model.profile import profile

TestNodes = Nodes.TestCase
TestNodes.settings = profile(300)
