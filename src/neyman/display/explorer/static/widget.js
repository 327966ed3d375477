// The explorer in a notebook. `neyman.display.explorer.widget` puts PAGE, STYLE, and `begin` before this.
const NAMED = ["level", "prior", "delta"];

// The settings as text, with what Python may have set.
const written = (model) => {
  const found = new URLSearchParams(model.get("settings"));
  for (const name of NAMED) found.set(name, String(model.get(name)));
  found.delete("budget");
  found.delete("weights");
  if (model.get("rho") !== null) found.set("budget", String(model.get("rho")));
  if (model.get("weights").length) found.set("weights", model.get("weights").join(","));
  return found.toString();
};

// Whether the page behind an element is dark: a notebook has a theme of its own.
const dark = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const [red, green, blue, alpha = 1] = (getComputedStyle(each).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    if (alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
};

const render = ({ model, el }) => {
  const host = document.createElement("div");
  host.setAttribute("data-lm-suppress-shortcuts", "true"); // of JupyterLab, which sees no field in a shadow
  el.append(host);
  const root = host.attachShadow({ mode: "open" });
  const style = document.createElement("style"), page = document.createElement("div");
  style.textContent = STYLE;
  page.className = "explorer";
  page.id = "body";
  page.innerHTML = PAGE;
  root.append(style, page);

  const me = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16)).join("");
  const waiting = new Map(), timers = [];
  let counted = 0, own = false;
  const heard = (message) => {
    waiting.get(message.id)?.(message);
    waiting.delete(message.id);
  };
  model.on("msg:custom", heard);
  const call = (kind, content = {}, signal = undefined) => new Promise((resolve, reject) => {
    const id = `${me}-${counted++}`;
    waiting.set(id, resolve);
    signal?.addEventListener("abort", () => {
      waiting.delete(id);
      reject(new DOMException("a newer question", "AbortError"));
    });
    model.send({ kind, id, ...content });
  });
  const changes = [];
  const sized = { width: 0 };
  const observer = new ResizeObserver(() => {
    host.dataset.theme = dark(el) ? "dark" : "light";
    if (!host.clientWidth || host.clientWidth === sized.width) return;
    sized.width = host.clientWidth;
    sized.draw?.();
  });
  const link = {
    opening: async () => model.get("_opening"),
    checks: async () => (await call("checks")).reply,
    ask: async (number, question, signal) => [200, (await call("answer", { page: me, number, question }, signal)).reply],
    watch: (reached) => {
      let asked = false;
      timers.push(setInterval(async () => {
        if (asked) return;
        asked = true;
        const late = setTimeout(() => reached(0), 6000);
        await call("alive");
        clearTimeout(late);
        asked = false;
        reached(200);
      }, 4000));
    },
    gone: "The kernel does not answer: it is busy, or it has stopped.",
    again: "This page goes on when the kernel answers. If the kernel was restarted, run the cell again.",
    settings: () => written(model),
    save: (text, state) => {
      own = true;
      model.set("settings", text);
      for (const name of NAMED) model.set(name, state[name]);
      model.set("rho", state.budget);
      model.set("weights", state.weights ?? []);
      model.save_changes();
      own = false;
    },
    moved: (changed) => {
      const listen = () => {
        if (!own) changed(written(model));
      };
      for (const name of [...NAMED, "rho", "weights", "settings"]) {
        changes.push([`change:${name}`, listen]);
        model.on(`change:${name}`, listen);
      }
    },
    resized: (draw) => (sized.draw = draw),
  };
  begin(root, link);
  observer.observe(host);
  return () => {
    timers.forEach(clearInterval);
    observer.disconnect();
    model.off("msg:custom", heard);
    for (const [name, listen] of changes) model.off(name, listen);
  };
};

export default { render };
