// Visits each screen of the page at URL in Chromium, judges it, and writes screenshots to SHOTS. Does the same with the
// report of a drill, the file REPORT.
"use strict";
const { execFileSync } = require("child_process");
const { createHash } = require("crypto");
const fs = require("fs");
const path = require("path");
const puppeteer = require("puppeteer-core");
const { HtmlValidate } = require("html-validate");

const { URL: base, SESSION: session, TOKEN: token, SHOTS: shots, RULES: rulesFile, NODES: nodes, BINARY: binary, REPORT: report } = process.env;
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
// Styles of a project, not errors; and the reload for browsers without scripts.
const rules = { "doctype-style": "off", "void-style": "off", "no-trailing-whitespace": "off", "meta-refresh": "off" };
const validator = new HtmlValidate({ extends: ["html-validate:recommended"], rules });
// The report of a drill is one file: it has the positions of its bars inline, and draws each section as a card.
const ofReport = { ...rules, "no-inline-style": "off", "prefer-native-element": "off" };
const reportValidator = new HtmlValidate({ extends: ["html-validate:recommended"], rules: ofReport });
const failures = [];
const fail = (text) => { failures.push(text); console.log(`FAIL ${text}`); };

const screens = {
  overview: "/",
  locks: "/locks",
  waiting: "/locks?show=waiting",
  lock: "/lock?lock=nightly",
  hostile: "/lock?lock=%3Cimg+src%3Dx+onerror%3Dalert%281%29%3E",
  semaphore: "/lock?lock=builders",
  free: "/lock?lock=free",
  sessions: "/sessions",
  session: `/session?id=${session}`,
  nodes: "/nodes",
  login: "/login",
  refused: "/session?id=999999",
};
const views = [
  { name: "light-1280", scheme: "light", width: 1280, height: 800 },
  { name: "dark-1280", scheme: "dark", width: 1280, height: 800 },
  { name: "light-360", scheme: "light", width: 360, height: 740 },
  { name: "dark-360", scheme: "dark", width: 360, height: 740 },
];

// Opens a tab of a browser, or of one of its contexts, which have separate cookies.
async function open(browser, view, watch, expected = /status of (400|401|404|409)/) {
  const page = await browser.newPage();
  await page.setViewport({ width: view.width, height: view.height });
  await page.emulateMediaFeatures([
    { name: "prefers-color-scheme", value: view.scheme },
    { name: "prefers-reduced-motion", value: "reduce" },
  ]);
  page.on("request", (request) => {
    if (!request.url().startsWith(base + "/") && !request.url().startsWith("data:")) fail(`${watch}: asks ${request.url()}`);
  });
  page.on("console", (message) => {
    if (message.type() === "error" && !expected.test(message.text())) fail(`${watch}: ${message.text()}`);
  });
  page.on("pageerror", (error) => fail(`${watch}: ${error.message}`));
  page.on("dialog", (dialog) => { fail(`${watch}: a script of a name ran`); dialog.dismiss(); });
  return page;
}

// Judges what a tab shows, and writes its screenshot.
async function inspect(page, name, view) {
  const label = `${name} ${view.name}`;
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wide > 0) fail(`${label}: scrolls sideways by ${wide} px`);
  const client = await page.createCDPSession();
  // axe is evaluated by the browser's debugger, because the policy of the page permits no other script.
  await client.send("Runtime.evaluate", { expression: axe });
  const result = await page.evaluate(() => window.axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  }));
  for (const one of result.violations) {
    fail(`${label}: axe ${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html).join(" | ")}`);
  }
  await page.screenshot({ path: path.join(shots, `${name}-${view.name}.png`), fullPage: true });
}

async function judge(browser, name, where, view) {
  const page = await open(browser, view, `${name} ${view.name}`);
  await page.goto(base + where, { waitUntil: "load" });
  await inspect(page, name, view);
  await keyboard(page, name, view);
  await page.close();
}

// The report of a drill is one file, which needs no node.
async function judgeReport(browser) {
  const html = fs.readFileSync(report, "utf8");
  for (const view of views) {
    const page = await open(browser, view, `drill ${view.name}`);
    await page.setContent(html, { waitUntil: "load" });
    await page.$eval("details", (node) => { node.open = true; });
    await inspect(page, "drill", view);
    await keyboard(page, "drill", view);
    await page.close();
  }
  await validated("drill", html, reportValidator);
}

async function validate(name, where) {
  validated(name, await (await fetch(base + where)).text());
}

async function validated(name, html, by = validator) {
  const result = await by.validateString(html);
  for (const file of result.results) {
    for (const one of file.messages) fail(`${name}: html-validate ${one.ruleId}: ${one.message} at ${one.line}:${one.column}`);
  }
}

// Each link, field and button that a tab shows is reached with Tab alone, and shows that it has the focus. A live screen
// is paused, and stays so.
async function keyboard(page, name, view) {
  const label = `keyboard ${name} ${view.name}`;
  await page.click("#pause").catch(() => {});
  const wanted = await page.evaluate(() => {
    const seen = (node) => node.offsetParent !== null || getComputedStyle(node).position === "absolute";
    const radios = new Set();
    const stops = "a[href], button, input, select, summary, [tabindex='0']";
    const nodes = [...document.querySelectorAll(stops)].filter((node) => {
      if (!seen(node) || node.type === "hidden") return false;
      if (node.type !== "radio") return true;
      if (radios.has(node.name)) return false;
      radios.add(node.name);
      return true;
    });
    document.activeElement.blur();
    return nodes.length;
  });
  const reached = new Set();
  for (let step = 0; step < wanted + 5; step += 1) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const node = document.activeElement;
      if (node === document.body) return null;
      const style = getComputedStyle(node);
      const all = [...document.querySelectorAll("*")];
      return { key: all.indexOf(node), html: node.outerHTML.slice(0, 80), shown: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 };
    });
    if (!at) continue;
    reached.add(at.key);
    if (!at.shown) fail(`${label}: the focus is not seen at ${at.html}`);
  }
  if (reached.size < wanted) fail(`${label}: ${reached.size} of ${wanted} are reached`);
}

// Waits until a live screen says this about itself.
async function says(page, watch, text, timeout = 30000) {
  await page.waitForFunction((wanted) => document.querySelector("#state").textContent === wanted, { timeout }, text)
    .catch(async () => fail(`${watch}: it says "${await page.$eval("#state", (node) => node.textContent)}", not "${text}"`));
}

// Records what a live screen says about itself from now on.
const record = (page) => page.evaluate(() => {
  const state = document.querySelector("#state");
  window.said = [state.textContent];
  new MutationObserver(() => window.said.push(state.textContent)).observe(state, { childList: true });
});
const recorded = (page) => page.evaluate(() => window.said);

// Gives a screen a stream that delivers what the test sends to `stream.onmessage`, and nothing else.
const ownStream = (page) => page.evaluateOnNewDocument(() => {
  window.EventSource = class {
    constructor() { window.stream = this; }
    close() {}
  };
});

// Returns the line with the entry of the log that a screen shows.
const entry = (page) => page.$eval(".strip small", (node) => node.textContent);

// Waits until a screen shows another entry than this one.
async function readAgain(page, watch, shown) {
  await page.waitForFunction((text) => document.querySelector(".strip small").textContent !== text, { timeout: 20000 }, shown)
    .catch(() => fail(`${watch}: the screen is not read again`));
}

// A live screen keeps focus, typed text and the pause.
async function live(browser) {
  const page = await open(browser, views[0], "live");
  await page.goto(`${base}/locks`, { waitUntil: "load" });
  const first = await entry(page);
  await page.focus("tbody tr:nth-child(3) a");
  const focused = () => page.evaluate(() => document.activeElement.getAttribute("href"));
  const before = await focused();
  await readAgain(page, "live", first);
  if (await focused() !== before) fail("live: the focus was lost");
  await page.type("input[name=prefix]", "ten");
  await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.keyboard.press("Enter")]);
  if (!page.url().includes("prefix=ten")) fail("live: the filter is not sent by the keyboard");
  await says(page, "live", "live");
  await page.click("#pause");
  if (await page.$eval("#state", (node) => node.textContent) !== "paused") fail("live: there is no pause");
  await record(page);
  await page.click("#pause");
  await says(page, "live after a pause", "live");
  const said = await recorded(page);
  if (said.includes("reloads each 10 s")) fail(`live after a pause: it says ${said}`);
  await page.close();
}

// While text is selected or a field is used, a live screen waits, and says so. The longest of its states fits. It
// continues at the end of that, without a message from the node.
async function held(browser) {
  const page = await open(browser, views[2], "held");
  await ownStream(page);
  await page.goto(`${base}/locks`, { waitUntil: "load" });
  const notify = () => page.evaluate(() => window.stream.onmessage());
  const saysSoon = (watch, text) => says(page, watch, text, 5000);
  await notify();
  await saysSoon("held", "live");
  const waits = "paused while you select or type";
  await page.evaluate(() => getSelection().selectAllChildren(document.querySelector("main table")));
  await notify();
  await saysSoon("held by a selection", waits);
  await inspect(page, "held", views[2]);
  await page.evaluate(() => getSelection().removeAllRanges());
  await saysSoon("held by a selection that ended", "live");
  await page.focus("input[name=prefix]");
  await notify();
  await saysSoon("held by a field", waits);
  await page.evaluate(() => document.activeElement.blur());
  await saysSoon("held by a field that was left", "live");
  await page.close();
}

// A row keeps the focus while other rows have the same link.
async function sameLinks(browser) {
  for (const who of ["ann", "bob"]) {
    const { handle } = await take("repeated", who);
    await call("release", { lock: "repeated", handle });
  }
  const page = await open(browser, views[0], "same links");
  await page.goto(base, { waitUntil: "load" });
  await says(page, "same links", "live");
  await page.evaluate(() => [...document.querySelectorAll(".records a")].find((node) => node.textContent === "repeated").focus());
  await take("after-repeated", "cleo");
  await page.waitForFunction(() => document.querySelector(".records").textContent.includes("after-repeated"), { timeout: 20000 })
    .catch(() => fail("same links: the screen does not show the new record"));
  if (await page.evaluate(() => document.activeElement.textContent) !== "repeated") fail("same links: the focus was lost");
  await page.close();
}

// The screen of a session that ends says so, and stays live.
async function ended(browser) {
  const { session: id, handle } = await call("sessions", { handle: "ends", ttl_ms: 600000, who: "ends" });
  const page = await open(browser, views[0], "ended");
  await page.goto(`${base}/session?id=${id}`, { waitUntil: "load" });
  await says(page, "ended", "live");
  await call(`sessions/${id}/close`, { handle });
  await page.waitForFunction(() => document.querySelector("main").textContent.includes("it has ended"), { timeout: 30000 })
    .catch(() => fail("ended: the screen does not show that the session has ended"));
  await says(page, "ended", "live");
  await page.close();
}

// A screen that gets no messages reloads, and never says that the node does not answer: one beyond the number that a
// node notifies, and one behind a proxy that buffers the messages.
async function notNotified(browser) {
  const refuse = async (page) => {
    await page.setRequestInterception(true);
    page.on("request", (request) => (request.url().endsWith("/page/live") ? request.respond({ status: 503 }) : request.continue()));
  };
  for (const [watch, prepare] of [["refused", refuse], ["collected", ownStream]]) {
    const page = await open(browser, views[0], watch, /status of 503/);
    await prepare(page);
    await page.goto(`${base}/locks`, { waitUntil: "load" });
    await record(page);
    for (const who of ["ann", "bob"]) {
      const shown = await entry(page);
      await take(`${watch}-${who}`, who);
      await readAgain(page, watch, shown);
    }
    const said = await recorded(page);
    if (said.some((text) => text !== "reloads each 10 s")) fail(`${watch}: it says ${said}`);
    await page.close();
  }
}

// The screen of a node that stops answering says so, although its connections stay open.
async function silent(browser) {
  const page = await open(browser, views[0], "silent");
  await page.goto(`${base}/locks`, { waitUntil: "load" });
  await says(page, "silent", "live");
  const [node] = nodes.split(" ").map(Number);
  process.kill(node, "SIGSTOP");
  try {
    await says(page, "silent", "no answer, trying again", 60000);
  } finally {
    process.kill(node, "SIGCONT");
  }
  await says(page, "silent for a while", "live", 60000);
  await page.close();
}

// Calls the port as a program does.
async function call(name, body) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${base}/v1/ns/default/${name}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

const take = (lock, who) => call("acquire", { lock, lease_ms: 600000, who, why: "rebuild the index", host: "db1", pid: 812 });

async function holders(lock) {
  const answer = await (await fetch(`${base}/v1/ns/default/locks?lock=${lock}`)).json();
  return answer.holders.map((holder) => holder.token).join();
}

// Signs in with the keyboard, asks a holder, and breaks holds: with a wrong name, with a form that is stale because
// another client holds the lock by then, and rightly. Each answer is a screen that is judged.
async function act(browser, view) {
  const context = await browser.createBrowserContext();
  const page = await open(context, view, `act ${view.name}`);
  const lock = `act-${view.name}`;
  const here = `/lock?lock=${lock}`;
  const go = (where) => page.goto(base + where, { waitUntil: "load" });
  const fill = async (fields) => {
    for (const [field, text] of Object.entries(fields)) {
      await page.$eval(field, (node) => { node.value = ""; });
      await page.type(field, text);
    }
    const [answer] = await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.keyboard.press("Enter")]);
    return answer;
  };
  const shows = async (name, answer, status, text) => {
    const shown = await page.$eval("main", (node) => node.textContent);
    if (answer.status() !== status) fail(`${name} ${view.name}: the status is ${answer.status()}, not ${status}`);
    if (!shown.includes(text)) fail(`${name} ${view.name}: ${JSON.stringify(text)} is not in ${shown}`);
    await inspect(page, name, view);
    await keyboard(page, name, view);
    await validated(name, await answer.text());
  };
  const follow = async (link) => {
    const [answer] = await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.click(link)]);
    return answer;
  };
  const kept = async (name, token) => {
    const now = await holders(lock);
    if (now !== token) fail(`${name} ${view.name}: held by "${now}", not by "${token}"`);
  };

  const first = await take(lock, "ann");
  await go(`/login?next=${encodeURIComponent(here)}`);
  await shows("login-mistyped", await fill({ "#token": "lkt_mistyped" }), 401, "this is no token");
  await fill({ "#token": token });
  if (!page.url().endsWith(here)) fail(`act: after the sign-in: ${page.url()}`);
  await inspect(page, "lock-signed-in", view);
  await keyboard(page, "lock-signed-in", view);

  await shows("ask", await follow(".acts a:not(.danger)"), 200, "Ask the holder with token");
  await shows("asked", await fill({ "#reason": "the release waits" }), 200, "The holder was asked.");
  await kept("asked", first.token);

  await go(here);
  await shows("break", await follow("a.danger"), 200, "Nothing was broken yet");
  const wrong = await fill({ "#reason": "db1 is dead", "#typed": "another" });
  await shows("break-mistyped", wrong, 400, "The typed name is not the name of the lock");
  await kept("break-mistyped", first.token);
  await call("release", { lock, handle: first.handle });
  const newer = await take(lock, "bob");
  await shows("break-stale", await fill({ "#reason": "db1 is dead", "#typed": lock }), 409, "Nothing was done");
  await kept("break-stale", newer.token);

  await go(here);
  await follow("a.danger");
  await shows("broken", await fill({ "#reason": "db1 is dead", "#typed": lock }), 200, "The hold is broken.");
  await kept("broken", "");
  await follow("main a:last-child");
  if (!(await page.$eval("main", (node) => node.textContent)).includes("by ops")) fail("broken: the history does not name the principal");
  await inspect(page, "lock-broken", view);
  await keyboard(page, "lock-broken", view);
  await follow(".account button");
  if (!page.url().endsWith("/login")) fail(`act: after the sign-out: ${page.url()}`);
  if ((await context.cookies()).length) fail("act: the cookie is kept after the sign-out");
  await context.close();
}

// A screen whose token is revoked leads to the form, which says why. Its cookie is not that of other screens.
async function revoke(browser) {
  const context = await browser.createBrowserContext();
  const page = await open(context, views[0], "revoke", /status of 401|MIME type/);
  await page.goto(`${base}/login?next=%2Flocks`, { waitUntil: "load" });
  await page.type("#token", token);
  await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.keyboard.press("Enter")]);
  const id = createHash("sha256").update(token).digest("hex").slice(0, 12);
  execFileSync(binary, ["auth", "revoke", rulesFile, id]);
  nodes.split(" ").forEach((node) => process.kill(Number(node), "SIGHUP"));
  await page.waitForFunction(() => location.pathname === "/login", { timeout: 30000 }).catch(() => fail("revoke: the screen is still shown"));
  await page.waitForSelector(".note");
  const note = await page.$eval(".note", (node) => node.textContent);
  if (!note.includes("the token is not known")) fail(`revoke: ${note}`);
  await inspect(page, "login-revoked", views[0]);
  await context.close();
}

(async () => {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-background-networking"],
  });
  try {
    for (const [name, where] of Object.entries(screens)) {
      for (const view of views) await judge(browser, name, where, view);
      await validate(name, where);
    }
    await judgeReport(browser);
    for (const one of [live, held, sameLinks, ended, notNotified]) await one(browser);
    for (const view of views) await act(browser, view);
    await revoke(browser);
    // The last, because node 1 may lead.
    await silent(browser);
  } finally {
    await browser.close();
  }
  console.log(failures.length ? `${failures.length} failures` : "no failures");
  process.exitCode = failures.length ? 1 : 0;
})();
