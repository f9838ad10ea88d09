// The form of a watch. Lists are chips. The preview beside it follows what is typed: from the store, without a poll,
// 600 ms after a change; what it would have rented takes a second, and follows after another 1.5 s of rest.
"use strict";
(() => {
  function chips(field) {
    const box = document.createElement("div"), typed = field.cloneNode(), label = document.querySelector(`label[for="${field.id}"]`);
    box.className = "tokens";
    for (const name of ["name", "data-chips", "value"]) typed.removeAttribute(name);
    typed.value = "";
    field.type = "hidden";
    field.removeAttribute("id");
    field.before(box);
    const values = () => field.value.split(",").map((one) => one.trim()).filter(Boolean);
    const set = (wanted) => {
      field.value = [...new Set(wanted)].join(", ");
      box.replaceChildren(...values().map((value) => {
        const token = document.createElement("span"), remove = document.createElement("button");
        token.className = "token";
        token.append(value + " ");
        remove.type = "button";
        remove.setAttribute("aria-label", `${label?.textContent ?? ""}: ${value} ✕`);
        remove.append("✕");
        remove.onclick = () => { set(values().filter((one) => one !== value)); typed.focus(); field.dispatchEvent(new Event("input", { bubbles: true })); };
        token.append(remove);
        return token;
      }), typed);
    };
    const take = () => {
      if (!typed.value.trim()) return;
      set([...values(), ...typed.value.split(",").map((one) => one.trim()).filter(Boolean)]);
      typed.value = "";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    typed.addEventListener("change", () => { take(); });
    typed.addEventListener("keydown", (event) => {
      if (event.key === "," || (event.key === "Enter" && typed.value)) { event.preventDefault(); take(); typed.focus(); }
      if (event.key === "Backspace" && !typed.value && values().length) { set(values().slice(0, -1)); typed.focus(); }
    });
    set(values());
  }
  const prepare = () => document.querySelectorAll("input[data-chips]").forEach(chips);
  document.addEventListener("gpuwatch:prepared", prepare); // also the form that comes back with what is wrong
  prepare();
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
