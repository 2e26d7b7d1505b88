// The browser's part: a control changes the address, and the address is all the server asks for.
window.dash_clientside = window.dash_clientside || {};
(function () {
  const skip = () => window.dash_clientside.no_update;
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
    if (id === "data") return put(params, facts, "data", value.length ? "1" : "0");
    return put(params, facts, id, value);
  }

  // Dash gives its file inputs no name, and makes them when it likes.
  new MutationObserver(() => {
    for (const input of document.querySelectorAll("input[type=file]:not([aria-label])"))
      input.setAttribute("aria-label", "file to drop in");
  }).observe(document.documentElement, { childList: true, subtree: true });

  const PATIENCE = 60_000; // milliseconds after which a question without an answer is asked again
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  let question = null;

  window.dash_clientside.umm = {
    change(...given) {
      const [facts, presets] = given.slice(-2);
      const params = new URLSearchParams(window.location.search);
      const before = params.toString();
      for (const { prop_id, value } of window.dash_clientside.callback_context.triggered) {
        if (value === null || value === undefined) continue;
        const id = prop_id.slice(0, prop_id.lastIndexOf("."));
        if (id === "pin") {
          if (params.has("pin")) params.delete("pin");
          else {
            const point = new URLSearchParams(params);
            for (const look of ["tab", "across", "fixed", "rank", "op", "what", "data"]) point.delete(look);
            params.set("pin", "?" + point.toString());
          }
        } else if (id.startsWith("{")) {
          const named = JSON.parse(id);
          if (named.preset) for (const [x, size] of Object.entries(presets[named.preset])) put(params, facts, x, size);
          if (named.pick) return named.pick === "?" ? "" : named.pick;
        } else apply(params, facts, id, value);
      }
      if (params.toString() === before) return skip();
      // Another question has other rows; how one looks at it changes none.
      const asked = ({ prop_id }) => !/^(rank|data)\./.test(prop_id);
      if (window.dash_clientside.callback_context.triggered.some(asked)) params.delete("row");
      const text = params.toString();
      return text ? "?" + text : "";
    },

    theme(clicks) {
      const asked = window.localStorage.getItem("umm-theme");
      const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      let theme = asked || system;
      if (clicks) {
        theme = theme === "dark" ? "light" : "dark";
        window.localStorage.setItem("umm-theme", theme);
      }
      document.documentElement.dataset.theme = theme;
      const button = document.getElementById("dark");
      if (button) button.setAttribute("aria-pressed", String(theme === "dark"));
      return theme;
    },

    ask(number, ...about) {
      if (question && same(question.about, about) && Date.now() - question.at < PATIENCE) return skip();
      question = { number, about, at: Date.now() };
      return number;
    },

    fill({ number, shown }, ...about) {
      const answered = question;
      if (number === question?.number) question = null;
      const late = number !== answered?.number || !same(answered.about, about);
      return window.dash_clientside.callback_context.outputs_list.map(({ id, property }) => {
        const name = `${id}.${property.split("@")[0]}`;
        return late || !(name in shown) ? skip() : shown[name];
      });
    },

    png() {
      const plot = [...document.querySelectorAll(".js-plotly-plot")].find((x) => x.offsetParent !== null);
      if (plot) window.Plotly.downloadImage(plot, { format: "png", scale: 2, filename: plot.parentNode.id || "figure" });
      return skip();
    },
  };
})();
