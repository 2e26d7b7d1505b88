// The browser's part: a control changes the address, and the address is all the server asks for.
window.dash_clientside = window.dash_clientside || {};
(function () {
  const skip = () => window.dash_clientside.no_update;
  const idOf = (name) => name.slice(0, name.lastIndexOf("."));
  const replicas = (text) => (text.includes("@") ? text.slice(text.indexOf("@")) : "");

  function put(params, facts, name, value) {
    const text = String(value);
    if (text === facts.usual[name]) params.delete(name);
    else params.set(name, text);
  }

  function layoutOf(params, facts, x) {
    return params.get(x) ?? facts.usual[x];
  }

  // What each control means for the address.
  function apply(params, facts, id, value) {
    const operand = id.match(/^([abc])-(part|index)$/);
    if (operand) {
      const [, x, what] = operand;
      const [partition, rest] = [layoutOf(params, facts, x).split("@")[0], replicas(layoutOf(params, facts, x))];
      if (what === "part") return put(params, facts, x, value + rest);
      const factor = facts.divisors[Number(value)] ?? 1;
      const order = rest.includes(":") ? rest.slice(rest.indexOf(":")) : "";
      return put(params, facts, x, factor > 1 ? `${partition}@${factor}${order}` : partition);
    }
    if (id === "fixed-index") return put(params, facts, "fixed", facts.fixed[Number(value)] ?? 0);
    if (id === "data" || id === "grow") return put(params, facts, id, value.length ? "1" : "0");
    if (["nodes", "ranks", "kv_heads", "shared", "layers", "price"].includes(id)) return put(params, facts, id, value || 0);
    if (id === "more") return value && apply(params, facts, "chain", value);
    if (id === "op") return put(params, facts, id, value || -1); // a text: "0" is an action
    if (id === "chain") for (const of of ["layouts", "down", "right", "statement", "op"]) params.delete(of); // of another
    return put(params, facts, id, value);
  }

  const address = () => new URLSearchParams(window.location.search);
  // What is as usual, said: the address without a query is what umm explore was started with.
  const plain = () => "machine=" + last["facts.data"].usual.machine;

  // The address once controls have changed these parameters; none if it is the one that is there.
  function addressed(params, ids) {
    if (params.toString() === address().toString()) return null;
    // Another question has other rows; how one looks at it changes none.
    if (ids.some((id) => !last["facts.data"].looks.includes(id.replace("-index", "")))) params.delete("row");
    return "?" + (params.toString() || plain());
  }

  // Dash gives its file inputs no name, and makes them when it likes.
  new MutationObserver(() => {
    for (const input of document.querySelectorAll("input[type=file]:not([aria-label])"))
      input.setAttribute("aria-label", "file to drop in");
  }).observe(document.documentElement, { childList: true, subtree: true });

  // Figures out of sight are drawn once they come near it: nobody waits for what nobody sees.
  const waiting = new WeakMap();
  const NEAR = 200; // pixels
  let react = null, plotly;

  function near(gd) {
    const box = gd.getBoundingClientRect();
    return box.height > 0 && box.top < window.innerHeight + NEAR && box.bottom > -NEAR;
  }

  function draw(gd, figure) {
    const handlers = waiting.get(gd)?.handlers ?? [];
    waiting.delete(gd);
    sight.unobserve(gd);
    const drawn = react(gd, ...figure);
    for (const handler of handlers) gd.on(...handler);
    return drawn;
  }

  function fits(gd) {
    const is = gd._fullLayout;
    return waiting.has(gd) || (is && is.width === gd.offsetWidth && is.height === gd.offsetHeight);
  }

  const sight = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen)
      if (isIntersecting && waiting.has(target)) draw(target, waiting.get(target).figure);
  }, { rootMargin: `${NEAR}px` });

  function drawnInSight(gd, ...figure) {
    if (near(gd)) return draw(gd, figure);
    const handlers = waiting.get(gd)?.handlers ?? [];
    if (!gd._fullLayout) gd.on = (...handler) => handlers.push(handler); // until plotly.js gives it its own
    waiting.set(gd, { figure, handlers });
    sight.observe(gd);
    return Promise.resolve(gd);
  }

  Object.defineProperty(window, "Plotly", {
    get: () => plotly,
    set(loaded) {
      plotly = loaded;
      plotly.setPlotConfig({ plotGlPixelRatio: window.devicePixelRatio }); // twice as many take four times as long
      react = plotly.react;
      plotly.react = drawnInSight;
      const { resize } = plotly.Plots;
      plotly.Plots.resize = (gd) => (fits(gd) ? Promise.resolve(gd) : resize(gd)); // Dash asks after every drawing
    },
  });

  // The page is about its address, its theme and what was dropped in; the server answers what it shows of that.
  // An answer is put into the page if nothing else was asked for meanwhile. What is found out behind the page is
  // asked for once nothing has changed for a while.
  const REST = 400; // milliseconds
  const OTHERS = new Set(["measured-words.children"]); // what callbacks of Dash put too
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const viewer = Array.from(crypto.getRandomValues(new Uint32Array(4)), (x) => x.toString(16)).join("");
  const last = {}; // what was put or chosen, by "id.property"
  let current = null; // the question whose answer the page shows, or waits for
  let made, ready = new Promise((resolve) => { made = resolve; }); // once the page has its parts
  let clock = 0;

  async function post(question, signal) {
    const body = JSON.stringify(question);
    const answer = await fetch("answer", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    return answer.json();
  }

  function write(shown) {
    const parts = {};
    for (const [name, value] of Object.entries(shown)) {
      const large = name.endsWith(".figure") && (value.data || last[name]?.data); // not worth a comparison
      if (!large && !OTHERS.has(name) && same(last[name], value)) continue;
      last[name] = value;
      const id = idOf(name);
      (parts[id] ??= {})[name.slice(id.length + 1)] = value;
    }
    for (const [id, props] of Object.entries(parts)) window.dash_clientside.set_props(id, props);
  }

  const busy = (is) => document.getElementById("answer")?.setAttribute("aria-busy", String(is));

  // Ask about something, in place of what was asked before.
  async function begin(about) {
    if (current && !current.failed && same(current.about, about)) return;
    current?.leave.abort();
    clearTimeout(clock);
    const mine = (current = { about, leave: new AbortController() });
    busy(true);
    await answered(mine, {});
    if (mine === current) requestAnimationFrame(() => setTimeout(() => busy(mine !== current)));
  }

  async function answered(mine, more) {
    let found;
    try {
      found = await post({ ...mine.about, viewer, ...more }, mine.leave.signal);
    } catch (error) {
      if (mine !== current) return;
      const why = error instanceof TypeError ? "does not answer; is umm explore still running?"
        : `failed (${error.message}); its terminal says why.`;
      found = { shown: { "status.children": `The page's server ${why}` } };
      mine.failed = true;
    }
    await ready;
    if (mine !== current) return;
    write(found.shown);
    const next = (wait) => { clock = setTimeout(answered, wait, mine, { stage: last["status.title"] ?? "" }); };
    if (found.over === false) found.soon ? requestAnimationFrame(() => mine === current && next(0)) : next(REST);
  }

  const themed = () => window.localStorage.getItem("umm-theme")
    || (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const files = (of) => JSON.parse(window.sessionStorage.getItem(of) || "{}");

  document.documentElement.dataset.theme = themed();
  begin({ query: window.location.search, theme: themed(), files: files("files"), chains: files("chain-files"), dropped: null });

  // Sliders and texts change the address themselves: Dash takes some frames to report a choice.
  const NATIVE = { range: "input", text: "change" };

  function choose({ type, target }) {
    if (NATIVE[target.type] !== type || !target.id) return;
    if (!last["facts.data"]) return void ready.then(() => choose({ type, target })); // typed before the page had its parts
    const value = target.type === "range" ? Number(target.value) : target.value;
    last[`${target.id}.value`] = value;
    const params = address();
    apply(params, last["facts.data"], target.id, value);
    const query = addressed(params, [target.id]);
    if (query === null) return;
    begin({ ...current.about, query });
    window.history.pushState({}, "", window.location.pathname + query);
    setTimeout(() => window.dispatchEvent(new PopStateEvent("popstate"))); // of which Dash takes note
  }

  const moved = () => begin({ ...current.about, query: window.location.search });

  for (const name of Object.values(NATIVE)) document.addEventListener(name, choose, { capture: true });
  for (const name of ["popstate", "_dashprivate_pushstate"]) window.addEventListener(name, moved);

  window.dash_clientside.umm = {
    change(...given) {
      const [facts, presets] = given.slice(-2);
      const changed = window.dash_clientside.callback_context.triggered.filter(
        ({ prop_id, value }) => value !== null && value !== undefined
          && (prop_id.endsWith(".n_clicks") || !same(value, last[prop_id]))); // what was put is no choice
      const params = address();
      for (const { prop_id, value } of changed) {
        last[prop_id] = value;
        const id = idOf(prop_id);
        if (id === "pin") {
          if (params.has("pin")) params.delete("pin");
          else {
            const point = new URLSearchParams(facts.point); // of a row of a search its layouts
            for (const look of facts.looks) point.delete(look);
            params.set("pin", "?" + point.toString());
          }
        } else if (id.startsWith("{")) {
          const named = JSON.parse(id);
          if (named.preset) for (const [x, size] of Object.entries(presets[named.preset])) put(params, facts, x, size);
          if (named.pick) return named.pick;
        } else apply(params, facts, id, value);
      }
      const query = addressed(params, changed.map(({ prop_id }) => idOf(prop_id)));
      if (query === null) return skip();
      begin({ ...current.about, query });
      return query;
    },

    show(theme, files, chains, dropped, facts) {
      last["facts.data"] ??= facts;
      made();
      begin({ query: window.location.search, theme, files: files ?? {}, chains: chains ?? {}, dropped: dropped || null });
      return skip();
    },

    cancel() {
      clearTimeout(clock);
      answered(current, { stage: last["status.title"] ?? "", cancels: true });
      return skip();
    },

    theme(clicks) {
      let theme = themed();
      if (clicks) {
        theme = theme === "dark" ? "light" : "dark";
        window.localStorage.setItem("umm-theme", theme);
      }
      document.documentElement.dataset.theme = theme;
      const button = document.getElementById("dark");
      if (button) button.setAttribute("aria-pressed", String(theme === "dark"));
      return theme;
    },

    png() {
      const plot = [...document.querySelectorAll(".js-plotly-plot")].find((x) => x.offsetParent !== null);
      if (plot) window.Plotly.downloadImage(plot, { format: "png", scale: 2, filename: plot.parentNode.id || "figure" });
      return skip();
    },
  };
})();
