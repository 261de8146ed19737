"""One JavaScript engine (V8) inside this process, for the libraries that draw: KaTeX and ELK.

Owns the engine's life, its lock, the loading of scripts, the way values go in and out (as JSON), and that a pure
function is asked the same but once. Knows nothing of what the scripts do.
"""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from py_mini_racer import JSEvalException, JSPromise, JSPromiseError, JSTimeoutException, MiniRacer

from atlas.errors import JavaScriptError
from atlas.render.kept import KeptAnswers

# Layout libraries use setTimeout only to let a caller go first, and nothing here waits: whatever its delay, a
# callback runs when the current script has finished.
# `__call` hands a failure back as a value: its message is then the thrower's own, without the engine's stack.
_PRELUDE = """
globalThis.global = globalThis;  // the name under which ELK looks for Map and the like
(() => {
  const waiting = new Set();
  let last = 0;
  globalThis.setTimeout = (callback, _delay, ...values) => {
    const id = ++last;
    waiting.add(id);
    Promise.resolve().then(() => { if (waiting.delete(id)) callback(...values); });
    return id;
  };
  globalThis.clearTimeout = id => { waiting.delete(id); };

  const done = value => JSON.stringify({ value: value === undefined ? null : value });
  const failed = thrown => JSON.stringify({ failure: String(thrown?.message ?? thrown) });
  globalThis.__call = (callee, values) => {
    try {
      const value = callee()(...JSON.parse(values));
      if (typeof value?.then !== "function") return done(value);
      return Promise.resolve(value).then(done).catch(failed);
    } catch (thrown) {
      return failed(thrown);
    }
  };
})();
"""


class JavaScript:
    """An engine with its own global scope. Any thread may use it; calls take turns.

    The engine starts at the first use and stops with `close`, or by itself when the process ends.
    """

    def __init__(self, timeout: float = 30.0) -> None:
        """`timeout`: seconds that one script or call may take, its promise included."""
        self._timeout = timeout
        self._lock = threading.RLock()
        self._loaded: set[Path] = set()
        self._defined: dict[str, str] = {}
        self._engine: MiniRacer | None = None
        self.kept = KeptAnswers()

    def ask(self, script: Path, function: str, *arguments: Any, keep: bool = True) -> Any:
        """What a function (its source) returns once `script` has been run; it must depend on nothing but these.

        So it is asked once, and its answer kept: neither script nor engine is needed again. Without `keep` it is not:
        nobody will ask the same again. Raises as `call`.
        """
        asked = json.dumps([_contents(script), function, arguments])
        question = hashlib.sha256(asked.encode()).digest()
        kept = self.kept.find(question)
        if kept is not None:
            return json.loads(kept)
        with self._lock:
            self.load(script)
            self.define(f"of {script.name}", function)
            answer = self.call(f"globalThis[{json.dumps(f'of {script.name}')}]", *arguments)
        if keep:
            self.kept.keep(question, json.dumps(answer))
        return answer

    def load(self, script: Path) -> None:
        """Run a script file, unless this engine has already. Raises JavaScriptError."""
        with self._lock:
            if script not in self._loaded:
                self._run(script.read_text(encoding="utf-8"), script.name)
                self._loaded.add(script)

    def define(self, name: str, expression: str) -> None:
        """Keep the value of `expression` (a function, say) as the global `name`, unless it is there already.

        Raises JavaScriptError.
        """
        with self._lock:
            if self._defined.get(name) != expression:
                self._run(f"globalThis[{json.dumps(name)}] = ({expression}\n); null", name)
                self._defined[name] = expression

    def call(self, function: str, *arguments: Any) -> Any:
        """What `function` (an expression that names one) returns; a promise is awaited.

        Arguments and result are JSON values; undefined becomes None. Raises JavaScriptError if the function
        throws, its promise is rejected or never settled, or time runs out.
        """
        values = json.dumps(json.dumps(arguments))
        with self._lock:
            answer = self._run(f"__call(() => ({function}), {values})", function)
        reply = json.loads(str(answer))
        if "failure" in reply:
            raise JavaScriptError(f"{function} failed in JavaScript: {reply['failure']}")
        return reply["value"]

    def close(self) -> None:
        """Stop the engine. The next use starts a fresh one, in which nothing is loaded or defined."""
        with self._lock:
            if self._engine is not None:
                self._finalizer()
                self._engine = None
                self._loaded.clear()
                self._defined.clear()

    def _run(self, code: str, name: str) -> object:
        """Evaluate `code`, then wait for its promise, if it is one."""
        engine = self._started()
        try:
            value = engine.eval(code, timeout_sec=self._timeout)
            return value.get(timeout=self._timeout) if isinstance(value, JSPromise) else value
        except JSTimeoutException as error:
            raise JavaScriptError(f"{name} took more than {self._timeout:g} s in JavaScript.") from error
        except (JSEvalException, JSPromiseError) as error:
            raise JavaScriptError(f"{name} failed in JavaScript: {error}") from error

    def _started(self) -> MiniRacer:
        if self._engine is None:
            # Made inside a running event loop, the engine would live on that loop and block it. In a fresh
            # thread there is none, so the engine gets a loop and a thread of its own.
            with ThreadPoolExecutor(max_workers=1) as thread:
                engine = thread.submit(MiniRacer).result()
            engine.eval(_PRELUDE)
            self._finalizer = weakref.finalize(self, engine.close)
            self._engine = engine
        return self._engine


KEPT = "cache"
"""The folder of a data directory in which answers are kept."""


@cache
def _contents(script: Path) -> str:
    """The sha256 of a script: it does not change while the process runs."""
    return hashlib.sha256(script.read_bytes()).hexdigest()


@cache
def shared() -> JavaScript:
    """The process's one engine: all that draws uses it."""
    return JavaScript()


def keep_answers(directory: Path) -> None:
    """Keep what the shared engine draws in a directory, for the processes that come later."""
    engine = shared()
    path = directory / "drawings.sqlite3"
    if engine.kept.path != path:
        engine.kept, before = KeptAnswers(path), engine.kept
        before.close()
