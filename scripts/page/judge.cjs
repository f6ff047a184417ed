// Visits each screen of the page at URL in Chromium, judges it, and writes screenshots to SHOTS.
"use strict";
const fs = require("fs");
const path = require("path");
const puppeteer = require("puppeteer-core");
const { HtmlValidate } = require("html-validate");

const { URL: base, SESSION: session, TOKEN: token, SHOTS: shots } = process.env;
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const validator = new HtmlValidate({
  extends: ["html-validate:recommended"],
  // Styles of a project, not errors; and the reload for browsers without scripts.
  rules: { "doctype-style": "off", "void-style": "off", "no-trailing-whitespace": "off", "meta-refresh": "off" },
});
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

async function open(browser, view, watch) {
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
    if (message.type() === "error" && !message.text().includes("404")) fail(`${watch}: ${message.text()}`);
  });
  page.on("pageerror", (error) => fail(`${watch}: ${error.message}`));
  page.on("dialog", (dialog) => { fail(`${watch}: a script of a name ran`); dialog.dismiss(); });
  return page;
}

async function judge(browser, name, where, view) {
  const label = `${name} ${view.name}`;
  const page = await open(browser, view, label);
  await page.goto(base + where, { waitUntil: "load" });
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
  await page.close();
}

async function validate(name, where, cookie) {
  const answer = await fetch(base + where, { headers: cookie ? { cookie } : {} });
  const report = await validator.validateString(await answer.text());
  for (const file of report.results) {
    for (const one of file.messages) fail(`${name}: html-validate ${one.ruleId}: ${one.message} at ${one.line}:${one.column}`);
  }
}

// Each link, field and button is reached with Tab alone, and shows that it has the focus.
async function keyboard(browser, where, view) {
  const page = await open(browser, view, `keyboard ${where}`);
  await page.goto(base + where, { waitUntil: "load" });
  await page.click("#pause").catch(() => {});
  const wanted = await page.evaluate(() => {
    const seen = (node) => node.offsetParent !== null || getComputedStyle(node).position === "absolute";
    const radios = new Set();
    const nodes = [...document.querySelectorAll("a[href], button, input, select")].filter((node) => {
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
    if (!at.shown) fail(`keyboard ${where}: the focus is not seen at ${at.html}`);
  }
  if (reached.size < wanted) fail(`keyboard ${where}: ${reached.size} of ${wanted} are reached`);
  await page.close();
}

// A live screen keeps focus, typed text and the pause.
async function live(browser) {
  const page = await open(browser, views[0], "live");
  await page.goto(`${base}/locks`, { waitUntil: "load" });
  const seen = () => page.$eval(".strip small", (node) => node.textContent);
  const first = await seen();
  await page.focus("tbody tr:nth-child(3) a");
  const focused = () => page.evaluate(() => document.activeElement.getAttribute("href"));
  const before = await focused();
  await page.waitForFunction((text) => document.querySelector(".strip small").textContent !== text, { timeout: 20000 }, first)
    .catch(() => fail("live: the screen is not read again"));
  if (await focused() !== before) fail("live: the focus was lost");
  await page.type("input[name=prefix]", "ten");
  await page.keyboard.press("Enter");
  await page.waitForNavigation();
  if (!page.url().includes("prefix=ten")) fail("live: the filter is not sent by the keyboard");
  await page.click("#pause");
  if (await page.$eval("#state", (node) => node.textContent) !== "paused") fail("live: there is no pause");
  await page.close();
}

// Signs in, asks for the break of a hold with the keyboard, and leaves the form without sending it.
async function act(browser) {
  for (const view of views) {
    const page = await open(browser, view, `act ${view.name}`);
    await page.goto(`${base}/login?next=%2Flock%3Flock%3Dnightly`, { waitUntil: "load" });
    if (!page.url().includes("/login")) { fail("act: no form"); return; }
    if (view === views[0]) {
      await page.type("#token", token);
      await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
      if (!page.url().includes("/lock?lock=nightly")) fail(`act: after the sign-in: ${page.url()}`);
    }
    await page.goto(`${base}/lock?lock=nightly`, { waitUntil: "load" });
    const to = await page.$eval("a.danger", (node) => node.getAttribute("href"));
    await page.close();
    await judge(browser, "lock-signed-in", "/lock?lock=nightly", view);
    await judge(browser, "break", to, view);
    if (view === views[0]) await keyboard(browser, to, view);
    if (view === views[0]) {
      const cookies = await browser.cookies();
      const cookie = cookies.map((one) => `${one.name}=${one.value}`).join("; ");
      await validate("break", to, cookie);
      await validate("lock-signed-in", "/lock?lock=nightly", cookie);
    }
  }
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
    for (const where of [screens.overview, screens.locks, screens.lock, screens.sessions, screens.nodes]) await keyboard(browser, where, views[0]);
    await live(browser);
    await act(browser);
  } finally {
    await browser.close();
  }
  console.log(failures.length ? `${failures.length} failures` : "no failures");
  process.exitCode = failures.length ? 1 : 0;
})();
