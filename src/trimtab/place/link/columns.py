"""Column generation."""
from __future__ import annotations
import highspy, numpy as np
from trimtab.place.link.packing import knapsack

class Master:
    def __init__(self, weight, value, limit, widths, machines):
        self.w, self.v, self.d = weight, value, limit
        self.widths, self.machines = widths, machines  # distinct capacities, how many of each
        self.P, self.T = len(weight), len(widths)
        h = self.h = highspy.Highs(); h.silent()
        h.setOptionValue("threads", 1)
        h.setOptionValue("presolve", "off")
        h.changeObjectiveSense(highspy.ObjSense.kMaximize)
        inf = highspy.kHighsInf
        for i in range(self.P): h.addRow(-inf, float(limit[i]), 0, [], [])
        for t in range(self.T): h.addRow(-inf, float(machines[t]), 0, [], [])
        self.cols = []; self.seen = set()
        self.best = np.empty(int(widths.max()) + 1); self.taken = np.zeros((self.P, int(widths.max()) + 1), np.int16)
        self.order = np.arange(self.P, dtype=np.int32)
    def add(self, t, n):
        key = (t, n.tobytes())
        if key in self.seen: return False
        self.seen.add(key)
        nz = np.flatnonzero(n)
        idx = np.append(nz, self.P + t).astype(np.int32); val = np.append(n[nz], 1.0).astype(float)
        self.h.addCol(float(self.v @ n), 0.0, highspy.kHighsInf, len(idx), idx, val)
        self.cols.append((t, n.copy())); return True
    def price(self, u):
        """best pattern per width under duals u; Lagrangian bound"""
        f = knapsack(self.w, self.v - u, self.d, self.order, int(self.widths.max()), self.best, self.taken)
        pats, bound = [], float(u @ self.d)
        for t, width in enumerate(self.widths):
            bound += self.machines[t] * self.best[width]
            n = np.zeros(self.P, np.int64); c = int(width)
            for p in range(self.P - 1, -1, -1):
                k = self.taken[p, c]
                if k: n[p] = k; c -= self.w[p] * (k + 1)
            pats.append((t, n, self.best[width]))
        return bound, pats
    def run(self, ub, u0, floor, iters=500, tol=1e-6):
        center = u0.copy(); alpha = 0.5
        b, pats = self.price(center); ub = min(ub, b)
        for t, n, _ in pats: self.add(t, n)
        for it in range(iters):
            self.h.run(); lp = self.h.getInfo().objective_function_value
            if floor(ub) <= lp + 1e-6 or ub - lp < tol * ub: break
            sol = self.h.getSolution(); dual = np.abs(np.array(sol.row_dual))
            u, pi = dual[:self.P], dual[self.P:]
            a = alpha; added = False
            while True:
                us = a * center + (1 - a) * u
                b, pats = self.price(us)
                if b < ub: ub = b; center = us
                for t, n, _ in pats:
                    if self.v @ n - u @ n > pi[t] + 1e-9: added |= self.add(t, n)
                if added or a == 0.0: break
                a = a - 0.25 if a > 0.3 else 0.0
            if not added: break
        return ub, lp, center, u, it
