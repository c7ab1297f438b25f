"use strict";
// One page at a time, and figures drawn when they come near. Without this script everything but the figures can be read.
(() => {
  const PAPER_PX = 680; // A4 or Letter, less its margins
  const PAPER_INK = "#555555"; // of texts in figures, whatever the screen's scheme
  const NARROW_PX = 480;
  const pages = [...document.querySelectorAll("main > article")];
  const figures = [...document.querySelectorAll("figure.drawn")];
  const drawn = new Set();
  let library = ""; // plotly.js, as soon as it is unpacked; run when a figure asks for it: a second's work that the first page does without

  async function unpacked(element) {
    const bytes = Uint8Array.from(atob(element.textContent), (each) => each.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  function ink() {
    return getComputedStyle(document.documentElement).getPropertyValue("--faint").trim();
  }

  function draw(figure) {
    if (drawn.has(figure)) return;
    drawn.add(figure);
    if (!window.Plotly) (0, eval)(library);
    const told = JSON.parse(figure.querySelector("script").textContent);
    told.layout.font = { ...told.layout.font, color: ink() };
    told.layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: "#7b7b7b", activecolor: "#2b83ba" };
    const canvas = figure.querySelector(".canvas");
    if (canvas.clientWidth < NARROW_PX && told.layout.legend) { // labels stand upright there, and the legend below them
      told.layout.legend.y *= 1.7;
      told.layout.height += 40;
      canvas.style.height = `${told.layout.height}px`;
    }
    const shown = { responsive: true, displaylogo: false, displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    Plotly.newPlot(canvas, told.data, told.layout, shown);
  }

  const near = new IntersectionObserver((seen) => {
    for (const each of seen.filter((entry) => entry.isIntersecting)) {
      near.unobserve(each.target);
      draw(each.target);
    }
  }, { rootMargin: "800px" });

  function show() {
    const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const page = (wanted && wanted.closest("main > article")) || pages[0];
    for (const each of pages) each.classList.toggle("shown", each === page);
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === "#" + page.id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (wanted && wanted !== page) {
      const folded = wanted.querySelector("details");
      if (folded && wanted.matches("tr")) folded.open = true;
      wanted.scrollIntoView();
    }
    else scrollTo(0, 0);
  }

  for (const form of document.querySelectorAll(".filters")) {
    const rows = [...document.querySelectorAll(`#${form.dataset.of} tbody tr`)];
    const count = form.querySelector("output");
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      const wanted = [...new FormData(form)].filter(([, value]) => value);
      for (const row of rows) {
        row.hidden = !wanted.every(([name, value]) => name === "words" ? row.textContent.toLowerCase().includes(value.toLowerCase()) : row.dataset[name] === value);
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    });
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const each of drawn) Plotly.relayout(each.querySelector(".canvas"), { "font.color": ink() });
  });
  addEventListener("hashchange", show);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.remove("paged");
    for (const each of library ? figures : []) { // a printer waits for nothing
      draw(each);
      Plotly.relayout(each.querySelector(".canvas"), { width: PAPER_PX, autosize: false, "font.color": PAPER_INK });
    }
  });
  addEventListener("afterprint", () => {
    for (const each of drawn) Plotly.relayout(each.querySelector(".canvas"), { width: null, autosize: true, "font.color": ink() });
    document.documentElement.classList.add("paged");
    show();
  });

  show();
  unpacked(document.getElementById("plotly")).then((text) => {
    library = text;
    for (const each of figures) near.observe(each);
  }, (fault) => {
    for (const each of figures) each.querySelector(".canvas").textContent = `Not drawn: this browser cannot unpack what draws it (${fault.message}).`;
  });
})();
