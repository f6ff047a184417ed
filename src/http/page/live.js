(() => {
  "use strict";
  const main = document.getElementById("main");
  const state = document.getElementById("state");
  const button = document.getElementById("pause");
  let paused = false, busy = false, again = false, source = null;
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  /* The key by which rows and sections are found again: an id, or the first link. */
  const key = (node) => node.nodeType === 1 && (node.id || (node.nodeName === "TR" && node.querySelector("a")?.getAttribute("href")));
  const patch = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeName !== fresh.nodeName || old.nodeType !== 1) { old.replaceWith(fresh); return; }
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const known = new Map([...old.childNodes].filter(key).map((node) => [key(node), node]));
    let at = old.firstChild;
    for (const node of [...fresh.childNodes]) {
      const same = key(node) ? known.get(key(node)) : at && !key(at) ? at : null;
      if (!same) { old.insertBefore(node, at); continue; }
      known.delete(key(node));
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
    if (paused || document.hidden || typing()) return;
    busy = true;
    try {
      const answer = await fetch(location.href);
      if (answer.redirected) { location.reload(); return; }
      if (!answer.ok) throw answer.status;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (fresh && !paused && !typing()) {
        const focus = document.activeElement;
        patch(main, fresh);
        if (focus !== document.activeElement && main.contains(focus)) focus.focus({ preventScroll: true });
      }
      say(paused ? "paused" : "live");
    } catch (error) { say("no answer, trying again"); }
    busy = false;
    if (again) { again = false; setTimeout(read, 1000); }
  };
  const stop = () => { if (source) source.close(); source = null; };
  const start = () => {
    stop();
    if (paused || document.hidden) return;
    source = new EventSource("/page/live");
    source.onmessage = read;
    source.onerror = () => {
      say("no answer, trying again");
      if (source && source.readyState === EventSource.CLOSED) { stop(); setTimeout(() => { read(); start(); }, 5000); }
    };
  };
  button.hidden = false;
  button.onclick = () => {
    paused = !paused;
    button.textContent = paused ? "Continue" : "Pause";
    say(paused ? "paused" : "live");
    if (paused) stop(); else { start(); read(); }
  };
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else { start(); read(); } });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  say("live");
  start();
})();
