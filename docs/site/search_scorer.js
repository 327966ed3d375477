// How the site's search orders its results (html_search_scorer in docs/conf.py).
var Scorer = {
  // Decisions and certificates come last, and pages whose title has all words of the query first.
  score: ([page, title, , , score, , kind]) => {
    if (/^certificates\/|^decisions$/.test(page)) return score - 100;
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const words = query.toLowerCase().trim().split(/\s+/);
    const named = kind !== "object" && !title.includes(" > ");
    return named && words.every((word) => title.toLowerCase().includes(word)) ? score + 100 : score;
  },
  // Sphinx's own values:
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
