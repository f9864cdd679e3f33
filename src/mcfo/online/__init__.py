"""Streams: a filter that takes one observation at a time, in constant memory, and learns from it if asked to.

state = mcfo.online.init(model, proposal, key=jax.random.key(0), particles=1000)
for x in stream:
    state, output = mcfo.online.step(state, x)
"""

from mcfo.learning.stream_files import restore as restore
from mcfo.learning.stream_files import save as save
from mcfo.learning.stream_settings import Learning as Learning
from mcfo.learning.streaming import Output as Output
from mcfo.learning.streaming import State as State
from mcfo.learning.streaming import init as init
from mcfo.learning.streaming import step as step
