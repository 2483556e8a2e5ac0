// Copy buttons, a box that selects all messages, keyboard shortcuts, and pages that keep
// themselves up to date. Without this file everything else works.
(() => {
  "use strict";
  const shown = () => document.querySelectorAll("button.copy[hidden]").forEach((b) => { b.hidden = false; });
  if (navigator.clipboard) {
    shown();
    new MutationObserver(shown).observe(document.getElementById("main"), { childList: true, subtree: true });
    document.addEventListener("click", async (e) => {
      const button = e.target.closest("button.copy");
      if (!button) return;
      const text = button.dataset.copyOf ? document.getElementById(button.dataset.copyOf).textContent : button.dataset.copy;
      let word = "Copied";
      try { await navigator.clipboard.writeText(text); } catch { word = "Not allowed"; }
      const was = button.innerHTML;
      button.textContent = word;
      setTimeout(() => { button.innerHTML = was; }, 1500);
    });
  }

  document.addEventListener("change", (e) => {
    if (!e.target.matches("[data-all], [name=at]")) return;
    const form = e.target.form, boxes = [...form.querySelectorAll("input[name=at]")], all = form.querySelector("[data-all]");
    if (e.target === all) boxes.forEach((box) => { box.checked = all.checked; });
    const n = boxes.filter((box) => box.checked).length;
    if (all) { all.checked = n === boxes.length; all.indeterminate = n > 0 && n < boxes.length; }
    const count = form.querySelector(".selected");
    if (count) count.textContent = n + " selected";
  });

  // Only what was previewed can be sent.
  const send = document.getElementById("send");
  document.querySelector("form.order")?.addEventListener("input", () => {
    if (!send) return;
    send.disabled = true;
    send.textContent = "Changed since the preview";
  });

  // Shortcuts of one key can be turned off, for users of speech input.
  const list = document.getElementById("keys");
  const off = document.getElementById("keys-toggle");
  let keys = true;
  try { keys = localStorage.getItem("redeliver-console-keys") !== "off"; } catch { /* not allowed to */ }
  const tell = () => {
    off.setAttribute("aria-pressed", String(!keys));
    off.textContent = keys ? "Turn shortcuts off" : "Turn shortcuts on";
  };
  if (!list) return;
  off.hidden = false;
  tell();
  off.addEventListener("click", () => {
    keys = !keys;
    try { localStorage.setItem("redeliver-console-keys", keys ? "on" : "off"); } catch { /* not allowed to */ }
    tell();
  });
  const step = (by) => {
    const links = [...document.querySelectorAll("main tbody th a[href]")];
    if (!links.length) return;
    const row = document.activeElement && document.activeElement.closest("tr");
    const at = links.findIndex((a) => a.closest("tr") === row);
    links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + by))].focus();
  };
  document.addEventListener("keydown", (e) => {
    if (!keys || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select")) return;
    const main = document.querySelector("[data-main]");
    const act = {
      "/": () => document.getElementById("find").focus(), j: () => step(1), k: () => step(-1), r: () => main && main.focus(),
      "?": () => { list.open = true; list.scrollIntoView(); list.querySelector("summary").focus(); },
    }[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  });
})();

// The server says that something has changed, the page asks for itself again and exchanges
// its parts that are marked data-live.
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
      const held = exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
      document.getElementById("note")?.remove(); // it was about what the page showed before
      found();
      bar.classList.toggle("held", held);
      say(held ? "Held while you select" : "Updated " + clock(), true);
    } catch {
      lose();
    }
    last = Date.now();
    busy = false;
    if (again) { again = false; schedule(); }
  }

  // exchange reports whether a part was left as it is for the user.
  function exchange(page) {
    let held = false;
    for (const now of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(now.id);
      if (!next || now.innerHTML === next.innerHTML) continue;
      const active = now.contains(document.activeElement) ? document.activeElement : null;
      // What somebody is filling in, has chosen or marked is not taken away from under them.
      const marked = getSelection();
      if (active && active.matches("input, textarea, select") || now.querySelector("input:checked") ||
        marked && !marked.isCollapsed && now.contains(marked.anchorNode)) {
        held = true;
        continue;
      }
      for (const was of now.querySelectorAll("details[id]")) {
        const then = next.querySelector("#" + CSS.escape(was.id));
        if (then) then.open = was.open;
      }
      const scrolled = [...now.querySelectorAll(".scroll")].map((e) => [e.scrollLeft, e.scrollTop]);
      const name = active && (active.id ? "#" + CSS.escape(active.id) : active.getAttribute("href") ? "[href=\"" + CSS.escape(active.getAttribute("href")) + "\"]" : "");
      now.replaceChildren(...next.childNodes);
      now.querySelectorAll(".scroll").forEach((e, i) => { e.scrollTo(...(scrolled[i] || [0, 0])); });
      const back = name && now.querySelector(name);
      if (back) back.focus({ preventScroll: true });
    }
    return held;
  }

  function lose() {
    if (!lost) lost = clock();
    say("Not up to date.", true); // the alert below says it aloud
    bar.classList.add("lost");
    offline.hidden = false;
    offline.textContent = "Disconnected since " + lost + ". What you see is as old as that. The page tries again by itself.";
  }

  function found() {
    if (lost && !paused) say("Updates on", true);
    bar.classList.remove("lost");
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
    toggle.textContent = paused ? "Resume updates" : "Pause updates";
    say(paused ? "Updates are paused." : "Updates on");
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
