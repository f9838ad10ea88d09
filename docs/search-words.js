// The site's search looks for the beginnings of all words of a query: "I" would find "is", "instance", "install".
// Words that every question has are left out before its worker gets the query; a query of such words alone stays.
(() => {
  const QUERY = 2 // the worker's message that asks
  const common = new Set(
    ("a an and are at be by can could did do does for from get has have how i if in into is it its me my of on or " +
      "should that the their there they this to was we what when where which who whom why will with would you your " +
      "в во и или к как ли мне можно на не о от по с у что чтобы это я").split(" "),
  )
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  const send = Worker.prototype.postMessage
  Worker.prototype.postMessage = function (message, ...rest) {
    if (message?.type === QUERY && typeof message.data === "string") {
      const kept = message.data.split(/\s+/).filter((word) => !common.has(word.toLowerCase().replace(/[?!.,]+$/, "")))
      if (kept.some(Boolean)) message = { ...message, data: kept.join(" ") }
    }
    return send.call(this, message, ...rest)
  }
})()
