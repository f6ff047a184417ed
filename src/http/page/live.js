(() => {
  "use strict";
  const main = document.getElementById("main");
  const state = document.getElementById("state");
  const button = document.getElementById("pause");
  /* lost: the node does not answer. held: a selection or a field keeps the screen as it is. */
  let paused = false, lost = false, held = false, busy = false, again = false;
  /* notified: the stream has delivered a message, and is not silent since. due: when a silent stream is opened again. */
  let source = null, notified = false, due = 0;
  const say = () => {
    const text = paused ? "paused" : lost ? "no answer, trying again" : held ? "paused while you select or type"
      : notified ? "live" : "reloads each 10 s";
    if (state.textContent !== text) state.textContent = text;
  };
  /* The key by which rows and sections are found again: an id, or the first link. */
  const key = (node) => node.nodeType === 1 && (node.id || (node.nodeName === "TR" && node.querySelector("a")?.getAttribute("href")));
  const patch = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeName !== fresh.nodeName || old.nodeType !== 1) { old.replaceWith(fresh); return; }
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    /* Several rows may have one key: they are matched in their order. */
    const known = new Map();
    for (const node of [...old.childNodes].filter(key)) known.set(key(node), [...known.get(key(node)) ?? [], node]);
    let at = old.firstChild;
    for (const node of [...fresh.childNodes]) {
      const same = key(node) ? known.get(key(node))?.shift() : at && !key(at) ? at : null;
      if (!same) { old.insertBefore(node, at); continue; }
      if (same === at) at = at.nextSibling; else old.insertBefore(same, at);
      patch(same, node);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };
  const typing = () => {
    const at = document.activeElement;
    const chosen = getSelection();
    return (at && main.contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.nodeName))
      || (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode));
  };
  const read = async () => {
    if (busy) { again = true; return; }
    if (paused || document.hidden) return;
    held = typing();
    if (held) { say(); return; }
    busy = true;
    /* Without messages, only this answer shows that the node works. */
    const late = setTimeout(() => { if (!notified) { lost = true; say(); } }, 25000);
    try {
      /* A busy node lets some screens wait for their turn. */
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(60000) });
      if (answer.redirected) { location.reload(); return; }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      /* A refusal is what the screen shows from now on, unless it is that of a busy node. */
      if (!fresh || answer.status === 429 || answer.status >= 500) throw answer.status;
      held = typing();
      if (!paused && !held) {
        const focus = document.activeElement;
        patch(main, fresh);
        if (focus !== document.activeElement && main.contains(focus)) focus.focus({ preventScroll: true });
      }
      lost = false;
    } catch (error) { lost = true; }
    clearTimeout(late);
    say();
    busy = false;
    if (again) { again = false; setTimeout(read, 1000); }
  };
  const stop = () => { if (source) source.close(); source = null; };
  const start = () => {
    stop();
    if (paused || document.hidden) return;
    /* The node sends a message at once, and then each 10 s at least. */
    const wait = (ms) => { due = performance.now() + ms; };
    wait(10000);
    source = new EventSource("/page/live");
    source.onmessage = () => { lost = false; notified = true; wait(25000); read(); };
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) {
        /* While the stream delivers nothing, only a read shows whether the node answers. */
        if (notified) lost = true; else read();
        say();
        return;
      }
      /* The node has no place for another stream, or refuses the caller. The answer to a read says which. */
      stop();
      notified = lost = false;
      wait(10000);
      say();
      read();
    };
  };
  setInterval(() => {
    if (paused || document.hidden || performance.now() < due) return;
    /* A node whose messages end does not answer. If none arrived, a proxy may buffer them, and the read decides. */
    if (source) { lost ||= notified; notified = false; say(); read(); }
    start();
  }, 1000);
  const resume = () => { if (held && !typing()) read(); };
  document.addEventListener("selectionchange", resume);
  /* While a field loses the focus, no other has it yet. */
  main.addEventListener("focusout", () => setTimeout(resume));
  button.hidden = false;
  button.onclick = () => {
    paused = !paused;
    button.textContent = paused ? "Continue" : "Pause";
    if (paused) stop(); else { start(); read(); }
    say();
  };
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else { start(); read(); } });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  start();
})();
