// Live updates: on an event, fetch the page again and replace only its live part.
"use strict";
(() => {
  const live = document.getElementById("live");
  const main = document.querySelector("[data-live]");
  if (!main || !window.EventSource) return;
  let waiting = null;
  let running = false;

  // Do not replace the part that has the keyboard focus.
  const isBusy = () => main.contains(document.activeElement);

  async function refresh() {
    waiting = null;
    if (running || isBusy() || document.hidden) return;
    running = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = fresh.querySelector("[data-live]");
      if (next && !isBusy()) {
        main.replaceChildren(...next.childNodes);
        document.dispatchEvent(new Event("gpuwatch:refreshed"));
        live.textContent = fresh.getElementById("live").textContent;
      }
    } catch (error) {
      live.textContent = "not connected; the figures may be outdated";
    } finally {
      running = false;
    }
  }

  const soon = (ms) => { if (waiting === null) waiting = setTimeout(refresh, ms); };
  const source = new EventSource("/api/v1/events");
  for (const kind of ["match", "approval", "rent", "end", "held", "orphan", "budget", "refused", "blind", "recovered",
    "drift", "channel", "daemon", "audit"]) source.addEventListener(kind, () => soon(200));
  source.onerror = () => { live.textContent = "not connected; the figures may be outdated"; };
  source.onopen = () => soon(0);
  setInterval(() => soon(0), 15000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(0); });
  addEventListener("pagehide", () => source.close());
})();
