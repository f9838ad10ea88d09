// The preview beside a watch's form follows what is typed: from the store, without a poll, 600 ms after a change;
// what it would have rented takes a second, and follows when the values have rested for another 1.5 s.
"use strict";
(() => {
  const form = () => document.getElementById("watch-form"); // a new one after an error
  if (!form()) return;
  let waiting = null, newest = 0;
  async function preview(quick = true) {
    const mine = ++newest, body = new URLSearchParams(new FormData(form()));
    if (quick) body.set("quick", "yes");
    try {
      const answer = await fetch("/watches/preview", { method: "POST", body, credentials: "same-origin", headers: { Accept: "text/html" } });
      if (!answer.ok || mine !== newest) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["preview", "dock-sum"]) {
        const now = document.getElementById(id), next = fresh.getElementById(id);
        if (now && next) now.replaceChildren(...next.childNodes);
      }
      if (quick) waiting = setTimeout(preview, 1500, false);
    } catch (error) { /* the next change tries again */ }
  }
  document.addEventListener("input", (event) => {
    if (!form()?.contains(event.target)) return;
    clearTimeout(waiting);
    waiting = setTimeout(preview, 600, true);
  });
  if (!document.querySelector("#preview dl")) preview();
})();
