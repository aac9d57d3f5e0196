"""Runs the cells of one context. Commands come on stdin, one JSON object a line; events go to the descriptor in argv[1].

What cells print goes to descriptors 1 and 2, which the server reads, so output of child processes and of C code is seen too.
"""

import ast
import asyncio
import base64
import builtins
import inspect
import io
import json
import linecache
import os
import random
import shlex
import signal
import subprocess
import sys
import traceback
import types

FORMATS = {
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
}
METHODS = {
    "_repr_html_": "html",
    "_repr_markdown_": "markdown",
    "_repr_svg_": "svg",
    "_repr_png_": "png",
    "_repr_jpeg_": "jpeg",
    "_repr_pdf_": "pdf",
    "_repr_latex_": "latex",
    "_repr_json_": "json",
    "_repr_javascript_": "javascript",
}

events = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8", buffering=1)
commands = os.fdopen(os.dup(0), "r", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
count = 0


def emit(kind, **members):
    events.write(json.dumps({"type": kind, **members}, default=repr) + "\n")


def encoded(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def formats_of(value):
    """Every form in which a value can show itself; one that fails is left out."""
    found = {"text": repr(value)}
    bundle = getattr(value, "_repr_mimebundle_", None)
    if callable(bundle):
        try:
            data = bundle()
            for mime, part in (data[0] if isinstance(data, tuple) else data or {}).items():
                found[FORMATS.get(mime, "text" if mime == "text/plain" else mime)] = encoded(part)
        except Exception:
            pass
    for method, name in METHODS.items():
        show = getattr(value, method, None)
        if inspect.isclass(value) or not callable(show) or name in found:
            continue
        try:
            part = show()
        except Exception:
            continue
        if part is not None:
            found[name] = encoded(part[0] if isinstance(part, tuple) else part)
    return found


def display(*values):
    flush()
    for value in values:
        emit("result", is_main_result=False, **formats_of(value))


def shell(line):
    """What `!line` means."""
    flush()
    subprocess.run(["bash", "-c", line], check=False)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def plain_python(code):
    """`!command` and `%pip …` at the beginning of a line, outside of strings, as calls."""
    try:
        ast.parse(code)
        return code
    except SyntaxError:
        pass
    lines = []
    for line in code.split("\n"):
        body = line.lstrip()
        indent = line[: len(line) - len(body)]
        if body.startswith("!"):
            line = f"{indent}__shell__({body[1:]!r})"
        elif body.startswith("%pip "):
            line = f"{indent}__shell__({shlex.join([sys.executable, '-m', 'pip', *shlex.split(body[5:])])!r})"
        lines.append(line)
    return "\n".join(lines)


def run(code, name):
    """The value of a last expression, or nothing."""
    tree = ast.parse(plain_python(code), name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    value = None
    for part, mode in ((tree, "exec"), (last, "eval")):
        if part is None or (mode == "exec" and not part.body):
            continue
        compiled = compile(part, name, mode, flags)
        value = eval(compiled, main.__dict__)
        if compiled.co_flags & inspect.CO_COROUTINE:
            value = loop.run_until_complete(value)
    return None if last is None else value


def figures():
    """Open figures of matplotlib, which then are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else ():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", bbox_inches="tight")
        pyplot.close(number)
        emit("result", is_main_result=False, text="<Figure>", png=encoded(picture.getvalue()))


def reseed():
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy:
        numpy.random.seed()


def execute(command):
    global count
    count += 1
    name = f"<cell {count}>"
    code = command["code"]
    linecache.cache[name] = (len(code), None, [line + "\n" for line in code.split("\n")], name)
    emit("number_of_executions", execution_count=count)
    os.environ.update(command.get("sandbox_envs") or {})
    before = dict(os.environ)
    os.environ.update(command.get("env_vars") or {})
    try:
        value = run(code, name)
        figures()
        flush()
        if value is not None:
            main.__dict__["_"] = value
            emit("result", is_main_result=True, **formats_of(value))
    except BaseException as error:
        flush()
        frames = error.__traceback__
        # Frames of this file say nothing to whoever wrote the cell.
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        if isinstance(error, SyntaxError) and str(error.filename).startswith("<cell"):
            frames = None
        text = "".join(traceback.format_exception(type(error), error, frames))
        emit("error", name=type(error).__name__, value=str(error), traceback=text)
    finally:
        for variable in command.get("env_vars") or {}:
            if variable in before:
                os.environ[variable] = before[variable]
            else:
                os.environ.pop(variable, None)


def serve():
    builtins.display = display
    main.__dict__.update({"__name__": "__main__", "__builtins__": builtins, "__shell__": shell})
    os.environ.setdefault("MPLBACKEND", "Agg")
    while True:
        try:
            line = commands.readline()
        except KeyboardInterrupt:
            continue
        if line == "":
            return
        command = json.loads(line)
        try:
            if command.get("reseed"):
                reseed()
            execute(command)
        except KeyboardInterrupt:
            pass
        flush()
        emit("done")


signal.signal(signal.SIGINT, signal.default_int_handler)
serve()
