// The preview beside a watch's form follows what is typed: from the store, without a poll, 600 ms after a change.
"use strict";
(() => {
  const form = () => document.getElementById("watch-form"); // a new one after an error
  if (!form()) return;
  let waiting = null, newest = 0;
  async function preview() {
    const mine = ++newest, body = new URLSearchParams(new FormData(form()));
    body.set("quick", "yes");
    try {
      const answer = await fetch("/watches/preview", { method: "POST", body, credentials: "same-origin", headers: { Accept: "text/html" } });
      if (!answer.ok || mine !== newest) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["preview", "dock-sum"]) {
        const now = document.getElementById(id), next = fresh.getElementById(id);
        if (now && next) now.replaceChildren(...next.childNodes);
      }
    } catch (error) { /* the next change tries again */ }
  }
  document.addEventListener("input", (event) => {
    if (!form()?.contains(event.target)) return;
    clearTimeout(waiting);
    waiting = setTimeout(preview, 600);
  });
  if (!document.querySelector("#preview dl")) preview();
})();
