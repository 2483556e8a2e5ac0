// Keeps a page up to date: the server says that something has changed, the page asks
// for itself again and exchanges its parts that are marked data-live. Without this
// file everything works but that.
(() => {
  "use strict";
  const bar = document.getElementById("live");
  if (!bar || !window.EventSource || !window.fetch) return;
  const status = document.getElementById("live-status");
  const toggle = document.getElementById("live-toggle");
  const offline = document.getElementById("offline");
  const remembered = "redeliver-console-paused";
  const least = 2000; // ms between two updates
  let source = null, timer = 0, last = 0, busy = false, again = false, lost = null;
  let paused = false;
  try { paused = sessionStorage.getItem(remembered) === "yes"; } catch { /* not allowed to */ }

  const clock = () => new Date().toISOString().slice(11, 19) + " UTC";
  // A screen reader hears only what people did and what went wrong, not each update.
  const say = (text, quiet) => {
    status.setAttribute("aria-live", quiet ? "off" : "polite");
    status.textContent = text;
  };

  function schedule() {
    if (paused || document.hidden) return;
    if (busy) { again = true; return; }
    if (timer) return;
    timer = setTimeout(update, Math.max(0, last + least - Date.now()));
  }

  async function update() {
    timer = 0;
    if (paused || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (!answer.ok) throw new Error("status " + answer.status);
      exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
      found();
      say("Up to date at " + clock(), true);
    } catch {
      lose();
    }
    last = Date.now();
    busy = false;
    if (again) { again = false; schedule(); }
  }

  function exchange(page) {
    for (const now of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(now.id);
      if (!next || now.innerHTML === next.innerHTML) continue;
      const active = now.contains(document.activeElement) ? document.activeElement : null;
      // What somebody is filling in, has chosen or marked is not taken away from under them.
      if (active && active.matches("input, textarea, select")) continue;
      if (now.querySelector("input:checked")) continue;
      const marked = getSelection();
      if (marked && !marked.isCollapsed && now.contains(marked.anchorNode)) continue;
      for (const was of now.querySelectorAll("details[id]")) {
        const then = next.querySelector("#" + CSS.escape(was.id));
        if (then) then.open = was.open;
      }
      const scrolled = [...now.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
      const name = active && (active.id ? "#" + CSS.escape(active.id) : active.getAttribute("href") ? "[href=\"" + CSS.escape(active.getAttribute("href")) + "\"]" : "");
      now.replaceChildren(...next.childNodes);
      now.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
      const back = name && now.querySelector(name);
      if (back) back.focus({ preventScroll: true });
    }
  }

  function lose() {
    if (!lost) lost = clock();
    say("Not up to date.", true); // the alert below says it aloud
    offline.hidden = false;
    offline.textContent = "Disconnected since " + lost + ". What you see is as old as that. It is tried again by itself.";
  }

  function found() {
    if (lost && !paused) say("This page keeps itself up to date.", true);
    lost = null;
    offline.hidden = true;
    offline.textContent = "";
  }

  function connect() {
    disconnect();
    if (paused || document.hidden) return;
    source = new EventSource(bar.dataset.events);
    source.addEventListener("hello", () => { if (lost) schedule(); found(); });
    source.addEventListener("changed", schedule);
    source.onerror = () => {
      lose();
      if (source && source.readyState === EventSource.CLOSED) { // refused: it does not try again by itself
        disconnect();
        setTimeout(connect, 10000);
      }
    };
  }

  function disconnect() {
    if (source) source.close();
    source = null;
    clearTimeout(timer);
    timer = 0;
  }

  function show() {
    toggle.setAttribute("aria-pressed", String(paused));
    toggle.textContent = paused ? "Go on with updates" : "Pause updates";
    say(paused ? "Updates are paused." : "This page keeps itself up to date.");
  }

  toggle.addEventListener("click", () => {
    paused = !paused;
    try { sessionStorage.setItem(remembered, paused ? "yes" : "no"); } catch { /* not allowed to */ }
    show();
    if (paused) { disconnect(); found(); } else { connect(); schedule(); }
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect(); else { connect(); schedule(); }
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (e) => { if (e.persisted) connect(); });
  bar.hidden = false;
  show();
  connect();
})();
