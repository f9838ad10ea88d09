// Live regions, sheets that ask before money moves, countdowns, copying, menus. Every page also works without it.
"use strict";
(() => {
  const texts = JSON.parse(document.body.dataset.texts), lang = document.documentElement.lang;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const two = (number) => String(number).padStart(2, "0");
  const live = document.getElementById("live"), lost = document.getElementById("lost");
  const ahead_ms = Date.parse(live.dataset.at) - Date.now(); // of the server's clock

  function span(s) {
    if (s < 60) return fill(texts.s, { seconds: s });
    if (s < 3600) return fill(texts.min_s, { minutes: Math.floor(s / 60), seconds: two(s % 60) });
    if (s < 172800) return fill(texts.h_min, { hours: Math.floor(s / 3600), minutes: two(Math.floor(s % 3600 / 60)) });
    return fill(texts.d_h, { days: Math.floor(s / 86400), hours: Math.floor(s % 86400 / 3600) });
  }
  const say = (text) => { document.getElementById("said").textContent = text; };

  // --- live regions: a region is replaced only if the server's HTML differs, and nobody is at work in it
  const served = new WeakMap();
  const regions = (within) => all("[data-live]", within).filter((one) => !one.parentElement.closest("[data-live]"));
  const keep = (region) => served.set(region, region.outerHTML);
  const isEdited = (field) => field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked
    : field.tagName === "SELECT" ? [...field.options].some((one) => one.selected !== one.defaultSelected && one.defaultSelected)
    : field.type !== "hidden" && field.value !== field.defaultValue;
  const isBusy = (region) => {
    const selection = getSelection();
    return region.contains(document.activeElement) || (!selection.isCollapsed && selection.containsNode(region, true))
      || all("input, textarea, select", region).some(isEdited);
  };
  const wordsOf = (row) => {
    const copy = row.cloneNode(true);
    all("time, svg, .u-wrap", copy).forEach((one) => one.remove());
    return copy.textContent.replace(/\s+/g, " ").trim();
  };
  const ROWS = ".rows > *, tbody > tr, .events > li";

  function replace(region, next) {
    if (served.get(region) === next.outerHTML || isBusy(region)) return;
    const html = next.outerHTML, before = new Set(all(ROWS, region).map(wordsOf));
    const open = all("details[id]", region).map((one) => [one.id, one.open]);
    const scrolls = all(".scroll, .log", region).map((one) => [one.scrollLeft, one.scrollTop]);
    const charts = all("[data-chart]", region);
    all("[data-chart]", next).forEach((fresh, index) => { // a drawn chart stays, with its cursor, and gets new data
      const drawn = charts[index];
      if (!drawn) return;
      const data = fresh.dataset.chart;
      fresh.replaceWith(drawn);
      drawn.dispatchEvent(new CustomEvent("gpuwatch:data", { detail: data }));
    });
    region.className = next.className;
    region.replaceChildren(...next.childNodes);
    served.set(region, html);
    for (const [id, isOpen] of open) { const found = document.getElementById(id); if (found) found.open = isOpen; }
    all(".scroll, .log", region).forEach((one, index) => { if (scrolls[index]) [one.scrollLeft, one.scrollTop] = scrolls[index]; });
    if (before.size) for (const row of all(ROWS, region)) if (!before.has(wordsOf(row))) row.classList.add("new");
    prepare(region);
    document.dispatchEvent(new Event("gpuwatch:refreshed"));
  }

  function place(next, added) { // where the server has it: beside the same neighbours
    const parent = next.parentElement;
    let put = null;
    for (const other of all("[data-live]", parent)) {
      const mine = other === next ? null : document.querySelector(`[data-live="${CSS.escape(other.dataset.live)}"]`);
      if (!mine) continue;
      let [from, to] = [other, mine];
      while (from.parentElement !== parent) [from, to] = [from.parentElement, to.parentElement];
      if (next.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING) { to.before(added); return true; }
      put = () => to.after(added);
    }
    put?.();
    return put !== null;
  }

  function apply(fresh) {
    const byKey = new Map(regions(document).map((one) => [one.dataset.live, one]));
    for (const next of regions(fresh)) {
      const region = byKey.get(next.dataset.live);
      byKey.delete(next.dataset.live);
      if (region) { replace(region, next); continue; }
      const added = document.importNode(next, true);
      if (!place(next, added)) continue; // it is shown with the next visit
      keep(added);
      added.classList.add("new");
      prepare(added);
    }
    for (const gone of byKey.values()) if (!isBusy(gone)) gone.remove();
  }

  const isFrameOnly = () => regions(document).every((one) => ["pills", "banners"].includes(one.dataset.live));
  let waiting = null, isReading = false, updated_ms = Date.now(), lost_ms = null;

  async function refresh() {
    waiting = null;
    if (isReading || document.hidden || document.querySelector("dialog[open]")) return;
    if ("once" in document.body.dataset) return; // an error, or the answer to a form, whose address takes forms alone
    isReading = true;
    try {
      const headers = { Accept: "text/html" };
      if (isFrameOnly()) headers["X-Frame-Only"] = "yes";
      const answer = await fetch(location.href, { headers, credentials: "same-origin" });
      if (answer.status === 401 && !all("main input, main textarea").some(isEdited)) return location.reload();
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (document.querySelector("dialog[open]")) return;
      apply(fresh);
      const waits = /^\(\d+\) /, count = fresh.title.match(waits);
      document.title = (count ? count[0] : "") + document.title.replace(waits, "");
      updated_ms = Date.now();
      live.dataset.clock = fresh.getElementById("live").dataset.clock;
      found();
    } catch (error) {
      missed();
    } finally {
      isReading = false;
    }
  }
  const soon = (ms) => { if (waiting === null) waiting = setTimeout(refresh, ms); };
  const missed = () => { lost_ms ??= Date.now(); };
  function found() {
    if (!lost.hidden) say(texts.back_said);
    lost_ms = null;
    lost.hidden = true;
    document.body.classList.remove("lost");
  }

  const KINDS = { approval: "decision_said", rent: "began_said", end: "ended_said", held: "check_said" };
  let source = null;
  function connect() {
    source = new EventSource("/api/v1/events");
    for (const kind of ["match", "approval", "rent", "end", "held", "orphan", "budget", "refused", "blind", "recovered",
      "drift", "channel", "daemon", "audit"]) {
      source.addEventListener(kind, () => { if (KINDS[kind]) say(texts[KINDS[kind]]); soon(200 + 800 * Math.random()); }); // not all at once
    }
    source.onerror = missed;
    source.onopen = () => { if (lost_ms !== null) soon(0); };
  }

  function tick() {
    const now = Date.now(), lost_s = lost_ms === null ? 0 : Math.floor((now - lost_ms) / 1000);
    if (lost_s >= 10) {
      if (lost.hidden) { say(texts.lost_said); document.body.classList.add("lost"); }
      lost.hidden = false;
      lost.querySelector("span").textContent = fill(texts.lost, { time: span(lost_s), clock: live.dataset.clock });
    }
    if (source && lost_ms === null) {
      live.textContent = fill(texts.live, { time: fill(texts.ago, { time: span(Math.floor((now - updated_ms) / 1000)) }) });
    }
    for (const time of all("time[data-until]")) {
      time.dataset.clock ??= time.textContent;
      const left_s = Math.ceil((Date.parse(time.dateTime) - now - ahead_ms) / 1000);
      time.textContent = left_s > 0 ? fill(texts.in, { time: span(left_s) }) : time.dataset.clock;
    }
  }

  // --- sheets: the answer of a form is shown in a dialog; without this script it is a page
  async function send(form, submitter) {
    const answer = await fetch(form.action, {
      method: "POST", body: new URLSearchParams(new FormData(form, submitter)), credentials: "same-origin",
      headers: { Accept: "text/html", "X-Sheet": "yes" },
    });
    const to = answer.headers.get("X-Location");
    if (to) { location.assign(to); return null; }
    const main = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (answer.status === 401) { location.assign("/login"); return null; }
    if (!answer.ok) throw new Error(main?.querySelector(".answer")?.textContent || texts.failed);
    const found = main.querySelector(".sheet");
    if (found || form.closest("dialog")) return found ?? main;
    const place = document.getElementById("main"); // not a question: the form again, with what is wrong
    place.replaceChildren(...main.childNodes);
    prepare(place);
    place.querySelector("[aria-invalid]")?.focus();
    return null;
  }
  function sheet() {
    const dialog = document.createElement("dialog");
    dialog.className = "sheet";
    dialog.addEventListener("close", () => { dialog.remove(); soon(0); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog || event.target.closest("[data-back]")) { event.preventDefault(); dialog.close(); } });
    dialog.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("input, select")) event.preventDefault(); });
    document.body.append(dialog);
    return dialog;
  }
  function show(dialog, content) {
    dialog.replaceChildren(...content.childNodes);
    const title = dialog.querySelector("h1, h2");
    if (title) { title.id ||= "sheet-title"; dialog.setAttribute("aria-labelledby", title.id); }
    prepare(dialog);
    if (!dialog.open) dialog.showModal();
    (dialog.querySelector("[aria-invalid]") ?? dialog.querySelector("[data-back]"))?.focus();
  }
  function complain(dialog, text) {
    dialog.querySelector(".banner")?.remove();
    const line = document.createElement("p");
    line.className = "banner error";
    line.setAttribute("role", "alert");
    line.textContent = text;
    (dialog.querySelector("h1, h2") ?? dialog).after(line);
  }
  document.addEventListener("submit", async (event) => {
    const form = event.target, dialog = form.closest("dialog");
    if (!dialog && !form.matches("[data-sheet]") && !event.submitter?.matches("[data-sheet]")) return;
    event.preventDefault();
    if (form.dataset.sending) return;
    form.dataset.sending = "yes";
    event.submitter?.setAttribute("aria-busy", "true");
    try {
      const content = await send(form, event.submitter);
      if (content) show(dialog ?? sheet(), content);
    } catch (error) {
      const place = dialog ?? sheet();
      if (!dialog) show(place, document.createRange().createContextualFragment("<h2></h2>"));
      complain(place, error instanceof TypeError ? texts.failed : error.message);
    } finally {
      delete form.dataset.sending;
      event.submitter?.removeAttribute("aria-busy");
    }
  });

  document.addEventListener("click", async (event) => { // a question that is a page of its own opens here, too
    const link = event.target.closest("a[data-sheet]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (link.dataset.sending) return;
    link.dataset.sending = "yes";
    const answer = await fetch(link.href, { credentials: "same-origin", headers: { Accept: "text/html" } }).catch(() => null);
    delete link.dataset.sending;
    const found = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main .sheet");
    if (found) show(sheet(), found);
    else location.assign(link.href);
  });

  // --- copying, menus
  async function copy(button) {
    const field = button.parentElement.querySelector("input");
    try {
      await navigator.clipboard.writeText(field.value);
    } catch (error) { // no clipboard without TLS
      field.select();
      document.execCommand("copy");
    }
    say(texts.copied);
    button.classList.add("done");
  }
  function prepare(within) {
    for (const button of all("[data-copy]", within)) button.hidden = false;
    within.dispatchEvent(new Event("gpuwatch:prepared", { bubbles: true }));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    for (const menu of all("details.menu[open], details.filter[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of all("details.menu[open], details.filter[open]")) {
      const isWithin = menu.contains(document.activeElement);
      menu.open = false;
      if (isWithin) menu.querySelector("summary").focus();
    }
  });

  regions(document).forEach(keep);
  prepare(document);
  if (regions(document).length) {
    connect();
    setInterval(() => { if (source.readyState === EventSource.CLOSED) connect(); soon(0); }, 15000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(0); });
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (event) => { if (event.persisted) { connect(); soon(0); } });
  }
  tick();
  setInterval(tick, 1000);
})();
