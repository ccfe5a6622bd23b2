namespace scatterlm {}
