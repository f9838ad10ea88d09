// Follow the log of a job: append new lines, and scroll only while Follow is on and the reader is at the end.
"use strict";
(() => {
  const place = document.querySelector("[data-log]");
  if (!place) return;
  const EVERY_MS = 2000, LINES_MAX = 5000;
  const toggle = document.getElementById("follow"), follows = toggle.querySelector("input");
  toggle.hidden = false;
  let run = Number(place.dataset.run), end = Number(place.dataset.end), lines = place.textContent.split("\n").length;

  const add = (text) => {
    const isAtEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    place.append(text);
    lines += text.split("\n").length - 1;
    if (lines > LINES_MAX) {
      const kept = place.textContent.split("\n").slice(-LINES_MAX / 2);
      place.textContent = kept.join("\n");
      lines = kept.length;
    }
    if (isAtEnd && follows.checked) place.scrollTop = place.scrollHeight;
    document.getElementById("no-log")?.remove();
  };

  async function follow() {
    if (document.hidden) return true;
    const asked = run ? `?run=${run}&begin=${end}` : "";
    const answer = await fetch(place.dataset.log + asked, { credentials: "same-origin" });
    if (!answer.ok) return answer.status !== 404;
    const found = await answer.json();
    if (found.run_number !== run) end = 0;
    run = found.run_number;
    end = found.end;
    if (found.lines.length) {
      add(found.lines.join("\n") + "\n");
      return follow();
    }
    if (found.next_run !== null) {
      if (run) add(place.dataset.nextRun.replace("{run}", found.next_run) + "\n");
      run = found.next_run;
      end = 0;
      return follow();
    }
    return !found.is_over;
  }

  follows.addEventListener("change", () => { if (follows.checked) place.scrollTop = place.scrollHeight; });
  const again = () => follow().catch(() => true).then((goesOn) => { if (goesOn) setTimeout(again, EVERY_MS); });
  place.scrollTop = place.scrollHeight;
  again();
})();
