"use strict";
// One page at a time, and figures drawn when they come near. Without this script everything but the figures can be read.
(() => {
  const PAPER_PX = 680; // A4 or Letter, less its margins
  const pages = [...document.querySelectorAll("main > article")];
  const figures = [...document.querySelectorAll("figure.drawn")];
  const drawn = new Set();

  function draw(figure) {
    if (drawn.has(figure)) return;
    drawn.add(figure);
    const told = JSON.parse(figure.querySelector("script").textContent);
    told.layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: "#7b7b7b", activecolor: "#2b83ba" };
    const shown = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    Plotly.newPlot(figure.querySelector(".plot"), told.data, told.layout, shown);
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
    for (const each of pages) each.hidden = each !== page;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === "#" + page.id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (wanted && wanted !== page) wanted.scrollIntoView();
    else scrollTo(0, 0);
  }

  const filters = document.querySelector(".filters");
  filters.hidden = false;
  filters.addEventListener("change", () => {
    const wanted = new FormData(filters);
    for (const claim of document.querySelectorAll(".claim")) {
      claim.hidden = ["study", "answer"].some((name) => wanted.get(name) && claim.dataset[name] !== wanted.get(name));
    }
  });

  addEventListener("hashchange", show);
  addEventListener("beforeprint", () => {
    for (const each of pages) each.hidden = false;
    for (const each of figures) {
      draw(each);
      Plotly.relayout(each.querySelector(".plot"), { width: PAPER_PX, autosize: false });
    }
  });
  addEventListener("afterprint", () => {
    for (const each of figures) Plotly.relayout(each.querySelector(".plot"), { width: null, autosize: true });
    show();
  });

  show();
  for (const each of figures) near.observe(each);
})();
