"""The explorer's server and its answers, without a browser."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.accounting import scale_sentence, usual_attacks
from neyman.accounting import sentences as words
from neyman.curves import Composition
from neyman.display import Explorer
from neyman.display.explorer import server, worker
from neyman.display.explorer.plan_desk import Opened, PlanDesk, opened_from
from neyman.publishing import Plan, errors, toml_text
from random_laws import examples, is_small

PLAN = """
schema = 2
name = "tiny"
dataset = "tiny@1"
table = "people"
[unit]
protects = "household"
neighboring = "replace-one"
rows = 1
[columns.race]
keys = ["a", "b", "</script><b>"]
unknown = "drop"
[hierarchy.place]
levels = ["state", "county"]
keys = [["x", "1"], ["x", "2"], ["y", "3"]]
unknown = "drop"
[budget]
power = 0.25
level = 0.05
[[query]]
name = "race"
measure = "count"
by = ["race"]
at = ["state"]
share = "1/4"
[[query]]
name = "place"
measure = "count"
at = ["state", "county"]
share = "3/4"
"""
QUICK = {
    "about": "mechanism", "kind": "discrete", "sigma": 2, "steps": 10, "ask": "risk", "level": 0.05,
    "prior": 0.5, "delta": 1e-6,
}  # fmt: skip
SAMPLED = QUICK | {"kind": "sampled", "sigma": 0.3, "rate": 1e-4, "steps": 1000}


def fresh_of(curve):
    """A copy that was asked nothing: answers of a contour depend on earlier questions."""
    return ny.Tradeoff(tuple(Composition(c.parts) for c in curve.alternatives))


def summary_of(curve):
    return fresh_of(curve).nearest_gaussian()


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def explorer(plan_file):
    explorer = Explorer(str(plan_file), port=0, seconds=1.0)
    threading.Thread(target=explorer.server.serve_forever, daemon=True).start()
    yield explorer
    explorer.server.shutdown()
    explorer.close()


@pytest.fixture(scope="module")
def cookie(explorer):
    """What the browser has after the printed address was opened."""
    reply, _ = ask(explorer, "GET", f"/?token={explorer.token}")
    assert reply.status == 303
    said = reply.headers["Set-Cookie"]
    assert "HttpOnly" in said
    assert "SameSite=Strict" in said
    return said.split(";")[0]


def ask(explorer, method, path, body=None, **headers):
    line = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    line.request(method, path, body, named)
    reply = line.getresponse()
    content = reply.read()
    line.close()
    return reply, content


def post(explorer, cookie, content, **headers):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    given = {
        "Cookie": cookie, "Origin": f"http://127.0.0.1:{explorer.port}",
        "Content_Type": "application/json", **headers,
    }  # fmt: skip
    return ask(explorer, "POST", "/answer", body, **given)


def test_the_token_is_good_once_and_nothing_is_told_without_the_cookie(explorer, cookie):
    assert explorer.server.server_address[0] == "127.0.0.1"  # no other machine can reach it
    assert ask(explorer, "GET", f"/?token={explorer.token}")[0].status == 403
    assert ask(explorer, "GET", "/?token=%C3%A9")[0].status == 403
    for path in ("/", "/explore.js", "/opening", "/checks", "/alive", "/x"):
        assert ask(explorer, "GET", path)[0].status == 403
        assert ask(explorer, "GET", path, Cookie=cookie + "x")[0].status == 403
    assert post(explorer, "", {})[0].status == 403
    assert ask(explorer, "GET", "/", Cookie=cookie)[0].status == 200
    again = ask(explorer, "GET", f"/?token={explorer.token}", Cookie=cookie)
    assert again[0].status == 303


def drip(lines):
    """One more byte of a request that never ends, on each connection that is still open."""
    for line in lines:
        with contextlib.suppress(OSError):
            line.sendall(b"x")


def test_connections_that_drip_bytes_keep_nobody_out_and_get_few_threads(explorer, cookie):
    with contextlib.ExitStack() as stack:
        ended = threading.Event()
        lines = []
        for _ in range(server.LIMITS.connections + 6 if is_small() else 60):
            line = socket.create_connection(("127.0.0.1", explorer.port))
            lines.append(stack.enter_context(line))
            line.sendall(b"GET /?token=")

        def going_on():
            while not ended.wait(0.05):
                drip(lines)

        thread = threading.Thread(target=going_on)
        thread.start()
        try:
            for path in ("/", "/opening", "/alive"):
                assert ask(explorer, "GET", path, Cookie=cookie)[0].status == 200
            handling = [
                one for one in threading.enumerate() if "process_request_thread" in one.name
            ]
            assert len(handling) <= server.LIMITS.connections
        finally:
            ended.set()
            thread.join()


def test_a_request_that_comes_byte_by_byte_is_ended_at_its_time_limit(explorer, monkeypatch):
    monkeypatch.setattr(server._Handler, "timeout", 0.5)
    with socket.create_connection(("127.0.0.1", explorer.port)) as line:
        line.sendall(b"GET /?token=")
        line.settimeout(0.05)
        for _ in range(400):
            drip([line])
            try:
                assert line.recv(1000) == b"", "nothing is answered"
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            raise AssertionError("it may go on for ever")


def test_a_connection_with_the_cookie_is_not_closed_to_make_room(explorer, cookie):
    selection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=30)
    with contextlib.ExitStack() as stack:
        stack.callback(selection.close)
        selection.request("GET", "/alive", headers={"Cookie": cookie})
        assert selection.getresponse().read() == b"{}"
        own = selection.sock
        for _ in range(
            server.LIMITS.connections + (2 if is_small() else server.LIMITS.connections)
        ):
            stack.enter_context(socket.create_connection(("127.0.0.1", explorer.port)))
        selection.request("GET", "/alive", headers={"Cookie": cookie})
        assert selection.getresponse().read() == b"{}"
        assert selection.sock is own


def test_other_names_and_other_pages_are_refused(explorer, cookie):
    """DNS rebinding changes the Host, and another page has another Origin."""
    for host in ("evil.example", f"evil.example:{explorer.port}", "127.0.0.1", "127.0.0.1:1"):
        assert ask(explorer, "GET", "/", Cookie=cookie, Host=host)[0].status == 421
    question = {"page": "p", "number": 1, "question": QUICK}
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{explorer.port}", ""):
        assert post(explorer, cookie, question, Origin=origin)[0].status == 403
    assert post(explorer, cookie, question, Sec_Fetch_Site="cross-site")[0].status == 403
    assert (
        ask(explorer, "GET", "/opening", Cookie=cookie, Sec_Fetch_Site="same-site")[0].status == 403
    )
    assert post(explorer, cookie, question, Content_Type="text/plain")[0].status == 415
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(explorer, method, "/", Cookie=cookie)[0].status == 501


def test_the_page_loads_its_own_files_and_nothing_else(explorer, cookie):
    reply, content = ask(explorer, "GET", "/", Cookie=cookie)
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    for part in ("frame-ancestors", "base-uri", "form-action"):
        assert f"{part} 'none'" in policy
    html = content.decode()
    assert not re.findall(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=|https?:", html)
    for path in re.findall(r'(?:src|href)="(/[^"]*)"', html):
        reply, content = ask(explorer, "GET", path, Cookie=cookie)
        assert reply.status == 200
        assert b"http:" not in content
        assert b"https:" not in content
        assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_questions_are_bounded_and_bad_ones_are_told_in_words(explorer, cookie):
    large = b" " * (server.LIMITS.request_bytes + 1)
    assert post(explorer, cookie, large)[0].status == 413
    for bad in (b"", b"{", b"[]", b"NaN", b"[" * 60_000, {"page": 1}, {"page": "p", "number": 1.5}):
        assert post(explorer, cookie, bad)[0].status == 400
    for change in (
        *({"sigma": sigma} for sigma in (0, True, "2")),
        *({"steps": steps} for steps in (0, 10**9, 1.5)),
        {"kind": "x"},
        {"about": []},
        {"ask": "__init__"},
        {"level": 2},
        {"delta": None},
        {"weights": [1000], "about": "plan"},
        {"weights": [0, 1000], "about": "plan"},
        {"rho": -1, "about": "plan"},
    ):
        question = {"page": "bad", "number": 1, "question": QUICK | change}
        reply, content = post(explorer, cookie, question)
        assert reply.status == 200
        assert next(iter(change)) in json.loads(content)["problem"]


def suspend(explorer):
    """Stop the process that works, so that it answers nothing, however fast the machine is."""
    process, _ = explorer.answering._worker._running
    os.kill(process.pid, signal.SIGSTOP)


def test_a_slow_answer_is_ended_and_the_next_one_comes(explorer, cookie):
    post(explorer, cookie, {"page": "slow", "number": 0, "question": QUICK})
    suspend(explorer)
    said = post(explorer, cookie, {"page": "slow", "number": 1, "question": SAMPLED})[1]
    assert json.loads(said)["problem"].startswith("Too slow: this takes more than 1 seconds.")
    said = post(explorer, cookie, {"page": "slow", "number": 2, "question": QUICK})[1]
    assert json.loads(said)["answer"]["tradeoff"]["y"] < 1


def test_an_outdated_question_is_not_worked_on():
    explorer, by_key = Explorer(port=0, seconds=60), {}
    suspend(explorer)

    def asked(number, question):
        try:
            by_key[number] = explorer.answering.answer("many", number, question)
        except worker.Outdated as error:
            by_key[number] = type(error)

    threads = []
    for number, question in ((1, SAMPLED), (2, QUICK), (3, QUICK)):
        threads.append(threading.Thread(target=asked, args=(number, question)))
        threads[-1].start()
        time.sleep(0.2)
    for thread in threads:
        thread.join(30)
    explorer.close()
    assert by_key[1] is worker.Outdated
    assert by_key[2] is worker.Outdated
    assert by_key[3]["tradeoff"]["y"] < 1


def test_a_port_in_use_is_told_or_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port = {port} is in use; name another"):
            Explorer(port=port)
    first, second = Explorer(), Explorer()
    try:
        assert first.port != second.port
        assert first.cookie != second.cookie
    finally:
        for each in (first, second):
            each.close()


def test_answers_are_those_of_the_library(plan_file):
    desk = PlanDesk(opened_from(str(plan_file)))
    sampled = ny.Gaussian(1).subsample(rate=0.01) * 100
    response = ny.RandomizedResponse(1, categories=3) * 2
    close = {"promise": "approximate", "epsilon": 1, "chance": 1e-6}
    for question, curve in (
        ({"kind": "gaussian", "sigma": 2, "steps": 3}, (ny.Gaussian(2) * 3).tradeoff()),
        ({"kind": "laplace", "scale": 2, "steps": 1}, ny.Laplace(2).tradeoff()),
        ({"kind": "laplace", "scale": 0.3, "steps": 9}, (ny.Laplace(0.3) * 9).tradeoff()),
        ({"kind": "discrete", "sigma": 2, "steps": 3}, (ny.DiscreteGaussian(2) * 3).tradeoff()),
        ({"kind": "response", "loss": 1, "categories": 3, "steps": 2}, response.tradeoff()),
        ({"kind": "sampled", "sigma": 1, "rate": 0.01, "steps": 100}, sampled.tradeoff()),
        ({"about": "guarantee", "promise": "gdp", "mu": 1}, ny.gdp(1)),
        ({"about": "guarantee", "promise": "zcdp", "rho": 0.5}, ny.zcdp(0.5)),
        ({"about": "guarantee", **close}, ny.approximate(1, 1e-6)),
        ({"about": "plan"}, Plan.load(plan_file).mechanism().tradeoff()),
    ):
        who = "household" if question.get("about") == "plan" else "person"
        asked = {"about": "mechanism", "level": 0.05, "prior": 0.1, "delta": 1e-5, **question}
        closer, first = desk.answer(asked | {"ask": "closer"}), desk.answer(asked | {"ask": "risk"})
        power, epsilon = curve.power(0.05), curve.epsilon(1e-5).upper
        assert closer.exact
        assert closer.tradeoff.y == power.upper
        said = words.power(0.05, power.upper, who, curve.neighboring)
        if question.get("kind") == "sampled":
            said = words.training(0.05, power.upper)
        assert closer.sentence == said
        assert closer.finding == words.finding(0.05, power.upper, 0.1)
        assert closer.figures[0][1] == closer.tradeoff.y_text == words.percent(power.upper)
        summaries = [f for f in closer.figures if f[0] == "Mu of the nearest Gaussian"]
        if question.get("about") != "plan" and not {"gaussian", "gdp"} & set(question.values()):
            assert summaries[0][1] == words.number(summary_of(curve).mu.upper)
        else:
            assert not summaries
        assert closer.figures[1][1] == words.percent(words.posterior(0.05, power.upper, 0.1))
        assert closer.figures[2][1] == words.number(epsilon)
        assert power.lower <= first.tradeoff.y <= power.upper + 1e-6
        bounds = curve.powers([a for a, _ in first.tradeoff.points])
        for (_, p), bound in zip(first.tradeoff.points, bounds, strict=True):
            assert bound.lower <= p <= bound.upper + 1e-3
        if first.exact:
            assert first.tradeoff.y == power.upper
            assert [p for _, p in first.tradeoff.points] == [bound.upper for bound in bounds]
        named = desk.answer(asked | {"ask": "attacks"})
        for attack, sentence in zip(usual_attacks(), named.sentences, strict=True):
            assert sentence == attack.success(fresh_of(curve)).sentence(who)
        assert "after they know all other records" in named.conditions
        assert named.scale == scale_sentence(0.05, closer.tradeoff.y)
        shown = desk.answer(asked | {"ask": "profile"}).curve
        assert shown.x_text == words.number(epsilon)
        for e, delta in shown.points:
            bound = curve.delta(e)
            step = any(d == 0 for x, d in shown.points if x == e)  # drawn down to 0 at once
            assert bound.lower <= delta
            # Many epsilons share a line, whose bounds are up to 4 times as wide as one's own.
            most = bound.upper + max(4 * (bound.upper - bound.lower), 1e-7 * bound.upper)
            assert delta <= most or step


def test_a_plan_at_its_own_budget_shows_the_limit_that_was_chosen():
    budget = {"budget": {"epsilon": 3, "delta": Decimal("1e-6")}}
    plan = Plan.from_dict(tomllib.loads(PLAN, parse_float=Decimal) | budget)
    desk = PlanDesk(Opened("plan.toml", plan=plan))
    question = {"about": "plan", "level": 0.05, "prior": 0.01, "delta": 1e-6}
    loud = {**question, "rho": float(1 / plan.scale) * 1.1}
    shown = [
        figure
        for asked in (question, loud)
        for name, figure, _ in desk.risk(asked).figures
        if name.startswith("Epsilon")
    ]
    assert shown[0] == "3"
    assert float(shown[1]) > 3
    rho = next(v for name, v, _ in desk.risk(question).figures if name.startswith("Rho"))
    assert float(rho) == pytest.approx(float(1 / plan.scale), rel=0.01)
    assert desk.guarantee(question).epsilon(1e-6) <= 3
    assert desk.profile(question).curve.x <= 3
    assert desk.guarantee(loud).tradeoff.epsilon(1e-6).lower > 3


def toml_of(desk, asked):
    return tomllib.loads(desk.answer(asked | {"ask": "tables"}).toml, parse_float=Decimal)


def test_a_plan_that_was_moved_is_written_as_what_was_shown(plan_file):
    desk = PlanDesk(opened_from(str(plan_file)))
    opening = desk.opening().plan
    assert opening.weights == [250, 750]
    own = Plan.load(plan_file)
    assert Plan.from_dict(toml_of(desk, {"about": "plan"})).hash == own.hash
    margins = [f"±\u00a0{words.number(error.half_width)}" for error in errors(own)]
    for rho, weights in ((None, [600, 400]), (0.2, None), (0.0123, [1, 999])):
        asked = {"about": "plan", "rho": rho, "weights": weights, "level": 0.05, "delta": 1e-6}
        asked["prior"] = 0.5
        moved = Plan.from_dict(toml_of(desk, asked))
        shown = desk.answer(asked | {"ask": "tables"}).rows
        for mine, before, row in zip(errors(moved), margins, shown, strict=True):
            assert row == [
                f"{mine.query} by {mine.level}", words.number(mine.cells),
                f"±\u00a0{words.number(mine.half_width)}", before, words.number(mine.gap),
            ]  # fmt: skip
        risk = desk.answer(asked | {"ask": "risk"})
        levels = [level for level, _ in risk.before]
        before = [bound.upper for bound in own.mechanism().tradeoff().powers(levels)]
        assert [power for _, power in risk.before] == pytest.approx(before, rel=1e-9)
        assert risk.before
        if rho is not None:
            curve = moved.mechanism().tradeoff()
            assert risk.tradeoff.y == pytest.approx(curve.power(0.05).upper, rel=1e-9)
        if weights is not None:
            assert [query.share for query in moved.queries] == [Fraction(w, 1000) for w in weights]
        if rho is not None:
            answer = desk.answer(asked | {"ask": "scenarios"})
            known = moved.concerning("race").tradeoff().power(0.05).upper
            assert [row[2] for row in answer.rows if row[0].endswith("’s race")] == [
                words.percent(known)
            ]
            assert answer.rows[-1][2] == words.percent(risk.tradeoff.y)
            curves = {curve.name: curve.points for curve in answer.curves}
            race = moved.concerning("race").tradeoff()
            for level, power in curves["race"][1:]:
                assert power == pytest.approx(race.power(level).upper, rel=1e-9)
    same = {"about": "plan", "rho": None, "weights": [250, 750], "prior": 0.5}
    assert desk.answer(same | {"ask": "risk", "level": 0.05, "delta": 1e-6}).before == []


@pytest.mark.parametrize("weight", ['"1/3"', "2.5", "{ state = 3 }"])
def test_weights_of_a_plan_are_kept(weight, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("share =", f"weight = {weight}\nshare =", 1))
    plan = Plan.load(path)
    desk = PlanDesk(opened_from(str(path)))
    same = Plan.from_dict(toml_of(desk, {"about": "plan"}))
    assert same.hash == plan.hash != Plan.from_dict(tomllib.loads(PLAN)).hash
    moved = Plan.from_dict(toml_of(desk, {"about": "plan", "weights": [600, 400]}))
    assert [q.weight for q in moved.queries] == [q.weight for q in plan.queries]


@pytest.mark.parametrize("more", ["", "disjoint = true\n"])
@pytest.mark.parametrize("asked", [{}, {"weights": [600, 400]}, {"rho": 0.25}])
def test_what_a_plan_leaves_is_left_in_the_explorer(asked, more, tmp_path):
    path = tmp_path / "plan.toml"
    text = PLAN.replace("[budget]", '[budget]\nunspent = "1/5"').replace(
        "schema = 2", more + "schema = 2"
    )
    for share in (query["share"] for query in tomllib.loads(PLAN)["query"]):
        text = text.replace(f'share = "{share}"', f'share = "{Fraction(share) * 4 / 5}"')
    path.write_text(text)
    desk = PlanDesk(opened_from(str(path)))
    asked = {"about": "plan", "level": 0.05, "prior": 0.5, "delta": 1e-6} | asked
    written = Plan.from_dict(toml_of(desk, asked))
    assert written.left == Fraction(1, 5)
    assert sum(query.share for query in written.queries) == Fraction(4, 5)
    rho = next(row for row in desk.guarantee(asked).more if row[0] == "Rho (zCDP)")
    assert float(rho[1]) == pytest.approx(0.8 / float(written.scale), rel=1e-2)


def test_margins_after_adding_up_are_those_that_a_release_publishes(plan_file, tmp_path):
    path = tmp_path / "adding.toml"
    path.write_text(PLAN + '[consistency]\nmethod = "least-squares"\n')
    asked = {"about": "plan", "rho": None, "weights": [600, 400]}
    desk = PlanDesk(opened_from(str(path)))
    moved = Plan.from_dict(toml_of(desk, asked))
    ledger = ny.throwaway(10)
    ledger.register("tiny@1", protects="household", neighboring="replace-one", rows=1)
    people = pa.table({"race": ["a"], "state": ["x"], "county": ["1"]})
    folder = ny.run(moved, people, ledger, tmp_path / "out").folder
    shown = desk.answer(asked | {"ask": "tables"})
    for error, row in zip(errors(moved), shown.rows, strict=True):
        path = folder / f"tables/consistent/{error.query}.{error.level}.parquet"
        table = pq.read_table(path, columns=["lower", "upper"])
        widest = float(np.max(table["upper"].to_numpy() - table["lower"].to_numpy())) / 2
        assert row[3] in {f"±\u00a0{words.number(widest * (1 + x))}" for x in (-1e-9, 0.0, 1e-9)}
    assert len(PlanDesk(opened_from(str(plan_file))).answer(asked | {"ask": "tables"}).head) == 5


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALAR = (
    TEXT
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-99, max_value=99)
)
INLINE = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
TABLE = st.recursive(
    st.dictionaries(TEXT, INLINE, max_size=3),
    lambda inner: st.dictionaries(TEXT, INLINE | inner | st.lists(inner, max_size=2), max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(240))
@given(TABLE)
def test_toml_says_what_it_was_made_of(sections):
    assert tomllib.loads(toml_text(sections), parse_float=Decimal) == sections


@pytest.fixture(scope="module")
def release(plan_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    people = folder / "people.csv"
    people.write_text("race,state,county\n" + "a,x,1\nb,x,2\na,y,3\n" * 30)
    ledger = ny.Ledger(str(folder / "ledger.db"))
    ledger.create("tiny@1", protects="household", neighboring="replace-one", cap="2")
    ny.run(plan_file, {"people": people}, ledger, folder / "out")
    return folder / "out"


def checked(path):
    explorer = Explorer(str(path), port=0)
    try:
        for _ in range(600):
            if explorer.answering.checks["state"] not in ("checking", "none"):
                return explorer.answering.opening, explorer.answering.checks
            time.sleep(0.1)
        raise AssertionError("never checked")
    finally:
        explorer.close()


def test_a_receipt_is_checked_and_an_edited_one_fails_in_words(release, tmp_path):
    opening, result = checked(release)
    assert all(each["ok"] for each in result["checks"])
    assert opening["plan"]["queries"] == ["race", "place"]
    copy = tmp_path / "copy"
    shutil.copytree(release, copy)
    receipt = json.loads((copy / "receipt.json").read_text())
    receipt["guarantee"]["power"][0]["upper"] = 0.01
    (copy / "receipt.json").write_text(json.dumps(receipt))
    _, result = checked(copy / "receipt.json")
    assert "guarantee" in {each["name"] for each in result["checks"] if not each["ok"]}
    receipt["plan"]["query"] = "none"
    (copy / "receipt.json").write_text(json.dumps(receipt))
    opening, result = checked(copy)
    assert opening["plan"] is None
    assert opening["problem"].startswith("its plan cannot be read")
    assert not all(each["ok"] for each in result["checks"])


def neyman(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "neyman", "explore", *map(str, args)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_the_command_prints_its_address_and_ends_when_told(plan_file):
    process = neyman(plan_file, "--no-browser", "--port", 0)
    assert process.stdout is not None
    line = process.stdout.readline()
    address = re.fullmatch(r"Open (http://127\.0\.0\.1:(\d+)/\?token=[\w-]{32})\n", line)
    assert address
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 4
    said = process.communicate()[1]
    # Nothing was reserved: the message must not speak about a charge that stays.
    assert "the explorer was stopped; nothing was charged" in said
    assert "spent" not in said
    for _ in range(50):
        left = [child for child in children if Path(f"/proc/{child}").exists()]
        if not left:
            break
        time.sleep(0.1)
    assert not left
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(address[2])), timeout=2)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), ("{}", "neither a plan"), ("[[[", "neither a plan")],
)
def test_a_file_that_is_neither_is_refused(tmp_path, content, said):
    path = tmp_path / "receipt.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=said):
        Explorer(str(path), port=0)


BOUNDED = (
    PLAN.replace("[unit]", 'noise = "rounded-gaussian"\n[unit]')
    .replace("rows = 1", 'rows = "discover"\nid = "id"')
    .replace('share = "1/4"', 'share = "1/8"')
    .replace('share = "3/4"', 'share = "3/8"')
    .replace("[budget]", "[columns.pay]\ninteger = true\n[budget]")
    + """
[[query]]
name = "pay"
measure = "sum"
column = "pay"
clip = "discover"
share = "1/2"
"""
)


@pytest.mark.parametrize(
    "more", [{}, {"weights": [100, 300, 600]}, {"weights": [800, 100, 100], "rho": 0.25}]
)
def test_a_plan_with_bounds_from_the_data_is_shown_and_written_again(more, tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(BOUNDED)
    desk = PlanDesk(opened_from(str(file)))
    opening = desk.opening().plan
    assert opening is not None
    assert opening.queries == ["race", "place", "pay"]
    about = {"about": "plan", "level": 0.05, "prior": 0.5, "delta": 1e-6}
    for ask in ("risk", "closer", "profile", "scenarios", "attacks"):
        assert desk.answer(about | {"ask": ask} | more)
    shown = desk.answer(about | {"ask": "tables"} | more)
    assert "largest candidates" in shown.note
    written = Plan.from_dict(tomllib.loads(shown.toml, parse_float=Decimal))
    scale = 4 if "rho" in more else desk.opened.plan.scale
    assert len(shown.rows) == len(errors(written))
    assert sum(query.share for query in written.queries) == 1
    assert written.scale == scale
    margins = [
        row[2] for row in PlanDesk(Opened(plan=written)).answer(about | {"ask": "tables"}).rows
    ]
    assert [row[2] for row in shown.rows] == margins
